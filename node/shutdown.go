package node

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/shutdown"
)

// openShutdown makes the part that terminates Pods before the machine goes down.
func (a *Agent) openShutdown() {
	a.shutdown = shutdown.New(shutdown.Config{
		Periods: a.Shutdown, Pods: a.activePods, End: a.endPod, HasEnded: a.hasEnded, RecordNodeEvent: a.recordNodeEvent,
		Changed: a.refreshNode, Log: a.Log,
	})
}

// watchShutdown delays the shutdown of the machine while Pods terminate.
func (a *Agent) watchShutdown(ctx context.Context) {
	switch err := a.shutdown.Run(ctx); {
	case errors.Is(err, shutdown.ErrNoBus):
		a.Log.WarnContext(ctx, "Pods will not be terminated gracefully when the machine shuts down: it has no systemd-logind that announces it")
	case err != nil && ctx.Err() == nil:
		a.Log.ErrorContext(ctx, "the shutdown of the machine is no longer watched", "err", err)
	}
}

// Stop stops the containers of all Pods of the node, see shutdown.Stop. When ctx ends they are started again, unless
// the agent itself has ended by then.
func (a *Agent) Stop(ctx context.Context, limit time.Duration, tell func(shutdown.Progress)) (left []string, err error) {
	var all []*corev1.Pod
	for _, x := range a.pods.Pods() {
		if !x.Removed {
			all = append(all, x.Pod)
		}
	}
	return shutdown.Stop(ctx, a.pods, all, limit, tell)
}

// Resume starts the containers again that Stop has stopped.
func (a *Agent) Resume() { a.pods.Resume() }

// bootTime returns when the machine was booted; zero if the kernel does not say.
func bootTime() time.Time {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}
	}
	for line := range strings.Lines(string(data)) {
		if text, found := strings.CutPrefix(line, "btime "); found {
			if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
				return time.Unix(n, 0)
			}
		}
	}
	return time.Time{}
}
