package node

import (
	"context"
	"errors"

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
