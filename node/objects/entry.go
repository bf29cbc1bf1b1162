package objects

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// entry is one object, or all of a resource, while a Pod needs it.
type entry struct {
	key
	users  map[types.UID]bool // guarded by Refs.mu
	stop   context.CancelFunc
	opened chan struct{} // closed when view or err is set
	view   client.View
	err    error
	fixed  atomic.Pointer[kind.Object]
}

// wait returns when the entry has had its first answer.
func (e *entry) wait(ctx context.Context) error {
	select {
	case <-e.opened:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// immutable is the object if it will never change; nobody watches it then.
func (e *entry) immutable() kind.Object {
	if o := e.fixed.Load(); o != nil {
		return *o
	}
	return nil
}

// follow opens an entry and tells of changes until nobody needs it.
func (r *Refs) follow(ctx context.Context, e *entry) {
	defer e.stop()
	if e.view, e.err = r.client.Part(ctx, e.on, client.Scope{Namespace: e.namespace, Name: e.name}); e.err != nil {
		r.forget(e)
		close(e.opened)
		return
	}
	var seen kind.Object // what those who wait will see
	if e.name != "" {
		seen, _ = e.view.Get(e.namespace, e.name)
		if seen != nil && neverChanges(seen) {
			e.fixed.Store(&seen)
			close(e.opened)
			return
		}
	}
	close(e.opened)
	for ev := range e.view.Events(ctx) {
		if ctx.Err() != nil {
			return
		}
		if same(ev, seen) {
			continue
		}
		if seen = ev.Object; ev.Deleted {
			seen = nil
		}
		if e.name != "" && seen != nil && neverChanges(seen) {
			o := seen
			e.fixed.Store(&o)
			r.tell(e)
			return
		}
		r.tell(e)
	}
}

// same says that an event is about what is known already: views begin with the present.
func same(ev client.Event, seen kind.Object) bool {
	return !ev.Gap && !ev.Deleted && seen != nil && ev.Object.GetUID() == seen.GetUID() && ev.Object.GetResourceVersion() == seen.GetResourceVersion()
}

func neverChanges(o kind.Object) bool {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *corev1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}
