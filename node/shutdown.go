package node

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/pod"
	"proa.dev/node/shutdown"
)

// openShutdown makes the part that ends Pods before the machine goes down.
func (a *Agent) openShutdown() {
	a.shutdown = shutdown.New(shutdown.Config{
		Periods: a.Shutdown, Pods: a.active, End: func(uid types.UID, v *pod.Verdict) { a.pods.End(uid, v) }, Gone: a.gone, TellNode: a.noteNode, Changed: func() { a.node.Poke() }, Log: a.Log,
	})
}

// watchShutdown holds the machine up while Pods end.
func (a *Agent) watchShutdown(ctx context.Context) {
	switch err := a.shutdown.Run(ctx); {
	case errors.Is(err, shutdown.ErrNoBus):
		a.Log.WarnContext(ctx, "Pods will not be ended when the machine goes down: it has no systemd that would say so")
	case err != nil && ctx.Err() == nil:
		a.Log.ErrorContext(ctx, "the shutdown of the machine is not watched any more", "err", err)
	}
}

// Stop stops the containers of all Pods of the node, see shutdown.Stop. When ctx ends they start again, unless the agent itself has
// ended by then.
func (a *Agent) Stop(ctx context.Context, limit time.Duration, tell func(shutdown.Progress)) (left []string, err error) {
	var all []*corev1.Pod
	for _, x := range a.pods.Pods() {
		if !x.Gone {
			all = append(all, x.Pod)
		}
	}
	return shutdown.Stop(ctx, a.pods, all, limit, tell)
}

// Resume lets Pods start again that Stop has stopped.
func (a *Agent) Resume() { a.pods.Resume() }

// booted is when the machine was started; zero where the kernel does not say.
func booted() time.Time {
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
