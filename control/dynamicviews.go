package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// DynamicViews declares the resources that come and go while a controller runs, which are mostly custom resources. As long as such
// a resource is served, the controller has a view of it, and its changes wake keys.
type DynamicViews struct {
	// Resources lists the resources to follow. It is called after every change of a CustomResourceDefinition, and when the
	// controller calls Cluster.RefreshDynamicViews.
	Resources func(*Cluster) []schema.GroupResource
	// Occupied, if not nil, reports whether a resource may have objects; no view is opened of one that has none.
	// NewlyOccupied is signalled when a resource gets its first object.
	Occupied      func(schema.GroupResource) bool
	NewlyOccupied <-chan struct{}
	// AggregatedChanged, if not nil, is signalled when aggregated API servers, or their resources, have come or gone.
	AggregatedChanged <-chan struct{}
	// Trigger returns the trigger of a resource: which keys its changes wake.
	Trigger func(schema.GroupResource) Trigger
	// WakeAll wakes every object of For when a resource has come.
	WakeAll bool
}

// RefreshDynamicViews makes the engine list the resources to follow once more.
func (c *Cluster) RefreshDynamicViews() { c.refresh.Send() }

// dynamicView is a resource that a controller follows, and its view.
type dynamicView struct {
	view client.View
	// definition is the UID of the CustomResourceDefinition: a definition that was deleted and created again has other objects.
	definition types.UID
	life       context.Context // ends when the view has no further events
	end        context.CancelFunc
}

// reach waits until the view shows a revision, or has ended.
func (f *dynamicView) reach(ctx context.Context, rev int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(f.life, stop)()
	err := f.view.Reach(ctx, rev)
	if f.life.Err() != nil {
		return nil
	}
	return err
}

func (c *Cluster) dynamicView(on schema.GroupResource) *dynamicView {
	v, ok := c.dynamic.Load(on)
	if !ok {
		return nil
	}
	return v.(*dynamicView)
}

const (
	// linger is for how long the view of a resource that is no longer served is still read, so that the deletions of its last
	// objects are seen.
	linger = 10 * time.Second
	// reopen is the pause before a view that could not be opened, or has ended, is opened again.
	reopen = time.Second
)

// viewFollower opens and closes the views of the resources that a controller follows.
type viewFollower struct {
	*DynamicViews
	cluster *Cluster
	log     *slog.Logger
	queue   *queue
	keys    client.View
	wg      sync.WaitGroup
	// empty holds the resources that have no view because they have no objects, each with the UID of its definition.
	empty map[schema.GroupResource]types.UID
}

// run keeps the views in step with the resources until ctx ends.
func (f *viewFollower) run(ctx context.Context) {
	defer f.wg.Wait()
	f.wg.Go(func() {
		for range restrict(f.definitions(), Key{}, changesResource).Events(ctx) {
			f.cluster.RefreshDynamicViews()
		}
	})
	retry := time.NewTimer(0) // fires at once for the first sync
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.cluster.refresh:
		case <-f.NewlyOccupied:
		case <-f.AggregatedChanged:
		case <-retry.C:
		}
		if !f.sync(ctx) {
			retry.Reset(reopen)
		}
	}
}

// changesResource reports whether a change of a definition changes the resource that it defines.
func changesResource(old, now kind.Object) bool {
	a, ok := old.(*apiextensionsv1.CustomResourceDefinition)
	b, also := now.(*apiextensionsv1.CustomResourceDefinition)
	return !ok || !also || a.UID != b.UID || a.Generation != b.Generation || established(a) != established(b) ||
		a.Status.AcceptedNames.Kind != b.Status.AcceptedNames.Kind || a.Status.AcceptedNames.Plural != b.Status.AcceptedNames.Plural
}

func established(c *apiextensionsv1.CustomResourceDefinition) bool {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == apiextensionsv1.Established {
			return c.Status.Conditions[i].Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// sync opens views of new resources, and ends those of resources that are no longer followed. It returns false when some
// view could not be opened yet.
func (f *viewFollower) sync(ctx context.Context) (complete bool) {
	wanted := map[schema.GroupResource]types.UID{}
	for _, on := range f.Resources(f.cluster) {
		if f.cluster.views[on] == nil {
			wanted[on] = f.definition(on)
		}
	}
	f.cluster.dynamic.Range(func(k, v any) bool {
		on, have := k.(schema.GroupResource), v.(*dynamicView)
		if uid, ok := wanted[on]; !ok || uid != have.definition || have.life.Err() != nil {
			f.cluster.dynamic.Delete(on)
			time.AfterFunc(linger, have.end)
		}
		return true
	})
	complete, come := true, false
	empty := map[schema.GroupResource]types.UID{}
	for on, uid := range wanted {
		if f.cluster.dynamicView(on) != nil {
			continue
		}
		if f.Occupied != nil && !f.Occupied(on) {
			empty[on] = uid
			was, known := f.empty[on]
			come = come || !known || was != uid
			continue
		}
		v, err := f.cluster.client.View(ctx, on)
		if err != nil {
			if ctx.Err() == nil && !apierrors.IsBadRequest(err) { // a bad request means that the resource is no longer served
				f.log.WarnContext(ctx, "cannot open the view of a resource", "controller", f.cluster.name, "resource", on.String(), "err",
					err)
			}
			complete = false
			continue
		}
		come = true
		f.open(ctx, on, uid, v)
	}
	f.empty = empty
	if come && f.WakeAll {
		for o := range f.keys.List("") {
			f.queue.add(KeyOf(o), cause{})
		}
	}
	return complete
}

// definitions returns the view of definitions as outlines: names and conditions are all that is read of them.
func (f *viewFollower) definitions() client.View {
	return client.Outlines(f.cluster.views[gr.CustomResourceDefinitions])
}

// definition returns the UID of the definition of a resource; empty for a built-in or aggregated one.
func (f *viewFollower) definition(on schema.GroupResource) types.UID {
	if o, found := f.definitions().Get("", on.Resource+"."+on.Group); found {
		return o.GetUID()
	}
	return ""
}

// open stores the view of a resource, and from then on wakes keys by its events.
func (f *viewFollower) open(ctx context.Context, on schema.GroupResource, uid types.UID, v client.View) {
	have := &dynamicView{view: v, definition: uid}
	have.life, have.end = context.WithCancel(ctx)
	f.cluster.dynamic.Store(on, have)
	t := f.Trigger(on)
	t.On = on
	f.wg.Go(func() {
		for ev := range restrict(v, t.Of, t.When).Events(have.life) {
			t.wake(f.cluster, f.queue, ev, f.keys)
		}
		if have.life.Err() == nil { // the view has ended by itself: it may have missed deletions, and must not be read any more
			have.end()
			f.cluster.dynamic.CompareAndDelete(on, have)
			t.wake(f.cluster, f.queue, client.Event{Gap: true}, f.keys)
		}
		if wait.Sleep(ctx, reopen) == nil { // the view has ended, but the resource may still be served
			f.cluster.RefreshDynamicViews()
		}
	})
}
