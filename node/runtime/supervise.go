package runtime

import (
	"context"
	"time"

	"proa.dev/internal/wait"
)

// supervise restarts containerd whenever it has ended, until the context does.
func (r *Runtime) supervise(ctx context.Context) {
	retry := wait.Backoff{First: firstBackoff, Max: maxBackoff}
	p := r.current
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done:
		}
		r.set(nil)
		p.Release()
		if time.Since(p.began) >= goodRun {
			retry.Reset()
		}
		pause := retry.Next()
		r.log.Warn("containerd has ended; restarting it", "pid", p.Pid, "wait", pause, "log", r.layout.log)
		if p = r.restart(ctx, pause, &retry); p == nil {
			return
		}
		r.set(p)
		r.log.Info("containerd runs again", "pid", p.Pid)
	}
}

// restart restarts containerd after a pause, with retries. It returns nil when the context has ended.
func (r *Runtime) restart(ctx context.Context, pause time.Duration, retry *wait.Backoff) *process {
	for {
		if wait.Sleep(ctx, pause) != nil {
			return nil
		}
		p, err := r.spawn()
		if err == nil {
			return p
		}
		pause = retry.Next()
		r.log.Error("containerd cannot be started", "error", err, "wait", pause)
	}
}

func (r *Runtime) set(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = p
}

// The back-off of restarts.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// goodRun is how long containerd must have run for the back-off to begin anew.
	goodRun = time.Minute
)
