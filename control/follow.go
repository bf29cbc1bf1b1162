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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Follow is how a controller sees custom resources, which come and go while it runs: as long as there is such a resource, there is a view of
// it, and its changes wake keys.
type Follow struct {
	// Resources lists the resources to follow, as they are now. It is asked after every change of a definition, and when the controller
	// calls Cluster.FollowAgain.
	Resources func(*Cluster) []schema.GroupResource
	// Occupied, if there, says that a resource may have objects: as long as it has none no view of it is needed. NewlyOccupied is signalled
	// when that becomes true of one.
	Occupied      func(schema.GroupResource) bool
	NewlyOccupied <-chan struct{}
	// Elsewhere, if there, is signalled when other API servers, or their resources, have come or gone.
	Elsewhere <-chan struct{}
	// Trigger says which keys changes of a resource wake.
	Trigger func(schema.GroupResource) Trigger
	// WakeAll wakes every object of For when a resource has come.
	WakeAll bool
}

// FollowAgain has the engine ask anew which resources to follow.
func (c *Cluster) FollowAgain() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// followed is a resource that a controller follows.
type followed struct {
	view client.View
	// definition is the UID of the definition: the objects of a definition that was deleted and made again are others.
	definition types.UID
	life       context.Context // ends when the view has no further events
	end        context.CancelFunc
}

// reach waits for a revision, or for the end of the view.
func (f *followed) reach(ctx context.Context, rev int64) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(f.life, stop)()
	err := f.view.Reach(ctx, rev)
	if f.life.Err() != nil {
		return nil
	}
	return err
}

func (c *Cluster) followed(on schema.GroupResource) *followed {
	v, ok := c.later.Load(on)
	if !ok {
		return nil
	}
	return v.(*followed)
}

const (
	// linger is for how long the view of a resource that is gone still tells its last changes: the deletions of the last objects.
	linger = 10 * time.Second
	// reopen is how long to wait after a view could not be opened.
	reopen = time.Second
)

// follower keeps up the views of what a controller follows.
type follower struct {
	*Follow
	cluster *Cluster
	log     *slog.Logger
	queue   *queue
	own     client.View
	wg      sync.WaitGroup
	// empty are the resources that have no view because they have no objects, each with the UID of its definition.
	empty map[schema.GroupResource]types.UID
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer f.wg.Wait()
	f.wg.Go(func() {
		for range sourceOf(f.definitions(), Key{}, changesResource).Events(ctx) {
			f.cluster.FollowAgain()
		}
	})
	retry := time.NewTimer(0) // the first look
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.cluster.again:
		case <-f.NewlyOccupied:
		case <-f.Elsewhere:
		case <-retry.C:
		}
		if !f.sync(ctx) {
			retry.Reset(reopen)
		}
	}
}

// changesResource leaves out changes of definitions that change nothing about their resource.
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

// sync opens the views of resources that have come, and ends those of others. It returns false when some cannot be opened yet.
func (f *follower) sync(ctx context.Context) (complete bool) {
	wanted := map[schema.GroupResource]types.UID{}
	for _, on := range f.Resources(f.cluster) {
		if f.cluster.views[on] == nil {
			wanted[on] = f.definition(on)
		}
	}
	f.cluster.later.Range(func(k, v any) bool {
		on, have := k.(schema.GroupResource), v.(*followed)
		if uid, ok := wanted[on]; !ok || uid != have.definition || have.life.Err() != nil {
			f.cluster.later.Delete(on)
			time.AfterFunc(linger, have.end)
		}
		return true
	})
	complete, come := true, false
	empty := map[schema.GroupResource]types.UID{}
	for on, uid := range wanted {
		if f.cluster.followed(on) != nil {
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
			if ctx.Err() == nil && !apierrors.IsBadRequest(err) { // that says that the resource is gone again
				f.log.WarnContext(ctx, "cannot follow a resource", "controller", f.cluster.name, "resource", on.String(), "err", err)
			}
			complete = false
			continue
		}
		come = true
		f.open(ctx, on, uid, v)
	}
	f.empty = empty
	if come && f.WakeAll {
		for o := range f.own.List("") {
			f.queue.add(KeyOf(o), cause{})
		}
	}
	return complete
}

// definitions is the view of definitions, of which names and conditions are enough.
func (f *follower) definitions() client.View {
	return client.Outlines(f.cluster.views[gr.CustomResourceDefinitions])
}

// definition is the UID of the definition of a resource; empty for a built-in one.
func (f *follower) definition(on schema.GroupResource) types.UID {
	if o, found := f.definitions().Get("", on.Resource+"."+on.Group); found {
		return o.GetUID()
	}
	return ""
}

// open wakes keys by the changes of a resource.
func (f *follower) open(ctx context.Context, on schema.GroupResource, uid types.UID, v client.View) {
	have := &followed{view: v, definition: uid}
	have.life, have.end = context.WithCancel(ctx)
	f.cluster.later.Store(on, have)
	t := f.Trigger(on)
	f.wg.Go(func() {
		for ev := range sourceOf(v, t.Of, t.When).Events(have.life) {
			t.wake(f.cluster, f.queue, ev, f.own)
		}
		have.end()
		select {
		case <-ctx.Done():
		case <-time.After(reopen): // the view has ended, and maybe the resource is there all the same
			f.cluster.FollowAgain()
		}
	})
}
