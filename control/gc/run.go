package gc

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// Run collects until ctx ends. Whenever changed delivers, resources may have come or gone. m may be nil.
func (g *Collector) Run(ctx context.Context, log *slog.Logger, c client.Client, m *control.Metrics, changed <-chan struct{}) error {
	first := g.Controller()
	known := g.table.Load().all
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { g.follow(ctx, log, c, known, changed) })
	return control.Run(ctx, log, c, first, m)
}

// follow runs a loop for each resource that comes later.
func (g *Collector) follow(ctx context.Context, log *slog.Logger, c client.Client, known []Resource, changed <-chan struct{}) {
	loops := map[schema.GroupResource]context.CancelFunc{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			for _, stop := range loops {
				stop()
			}
			return
		case <-changed:
		}
		now := g.reload().all
		has := func(list []Resource, on schema.GroupResource) bool {
			return slices.ContainsFunc(list, func(r Resource) bool { return r.GroupResource == on })
		}
		for on, stop := range loops {
			if !has(now, on) {
				stop()
				delete(loops, on)
				g.later.Delete(on)
			}
		}
		for _, r := range now {
			if has(known, r.GroupResource) || loops[r.GroupResource] != nil {
				continue
			}
			v, err := c.View(ctx, r.GroupResource)
			if err != nil {
				log.WarnContext(ctx, "cannot look for garbage among a resource", "resource", r.String(), "err", err)
				continue
			}
			g.later.Store(r.GroupResource, v)
			life, stop := context.WithCancel(ctx)
			loops[r.GroupResource] = stop
			wg.Go(func() {
				if err := control.Run(life, log, c, g.loopOf(r, known), nil); err != nil && life.Err() == nil {
					log.WarnContext(ctx, "cannot look for garbage among a resource", "resource", r.String(), "err", err)
				}
			})
		}
	}
}

// loopOf follows one resource. As it starts it looks at every namespace: an object that names an owner of this kind
// could not be judged before.
func (g *Collector) loopOf(r Resource, known []Resource) control.Controller {
	ctl := g.loop([]Resource{r})
	ctl.When = func(old, now kind.Object) bool { return old == nil && now != nil }
	for _, k := range known {
		ctl.Reads = append(ctl.Reads, k.GroupResource)
	}
	return ctl
}
