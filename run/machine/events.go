package machine

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// warner returns the function by which a part of the node records warning Events about objects.
func warner(events *client.Recorder) func(about kind.Object, reason, message string) {
	return func(about kind.Object, reason, message string) {
		events.Event(about, corev1.EventTypeWarning, reason, "%s", message)
	}
}

// runWithEvents runs a part of the node, and its event recorder for as long as the part runs.
func runWithEvents(ctx context.Context, events *client.Recorder, run func(context.Context) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { events.Run(ctx) })
	return run(ctx)
}
