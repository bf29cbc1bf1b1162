package runtime

import (
	"context"
	"time"
)

// supervise starts containerd again whenever it has ended, until the context does.
func (r *Runtime) supervise(ctx context.Context) {
	var b backoff
	p := r.current
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done:
		}
		r.set(nil)
		p.Release()
		wait := b.next(time.Since(p.began))
		r.log.Warn("containerd has ended, and is started again", "pid", p.Pid, "wait", wait, "log", r.layout.log)
		if p = r.again(ctx, wait, &b); p == nil {
			return
		}
		r.set(p)
		r.log.Info("containerd runs again", "pid", p.Pid)
	}
}

// again starts containerd after a while, and tries until that works. It returns nil when the context has ended.
func (r *Runtime) again(ctx context.Context, wait time.Duration, b *backoff) *process {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		p, err := r.spawn()
		if err == nil {
			return p
		}
		wait = b.next(0)
		r.log.Error("containerd cannot be started", "error", err, "wait", wait)
	}
}

func (r *Runtime) set(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = p
}

// backoff says how long to wait before the next start. A first end may be anything; one that follows soon after is not.
type backoff struct{ wait time.Duration }

const (
	firstWait = 100 * time.Millisecond
	longWait  = 30 * time.Second
	// goodRun is how long containerd must have run for its end to be a first one again.
	goodRun = time.Minute
)

func (b *backoff) next(ran time.Duration) time.Duration {
	switch {
	case ran >= goodRun || b.wait == 0:
		b.wait = firstWait
	default:
		b.wait = min(2*b.wait, longWait)
	}
	return b.wait
}
