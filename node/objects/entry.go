package objects

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// entry is one object, or all objects of a resource, while a Pod needs it.
type entry struct {
	key
	users  map[types.UID]bool // guarded by Refs.mu
	stop   context.CancelFunc
	opened chan struct{} // closed when view or err is set
	view   client.View
	err    error
	fixed  atomic.Pointer[kind.Object]
}

// wait waits until the entry is opened.
func (e *entry) wait(ctx context.Context) error {
	select {
	case <-e.opened:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// immutable returns the object if it will never change; then it is not watched.
func (e *entry) immutable() kind.Object {
	if o := e.fixed.Load(); o != nil {
		return *o
	}
	return nil
}

// follow opens an entry and reports changes until no Pod needs it.
func (r *Refs) follow(ctx context.Context, e *entry) {
	defer e.stop()
	if e.view, e.err = r.client.Part(ctx, e.on, client.Scope{Namespace: e.namespace, Name: e.name}); e.err != nil {
		r.forget(e)
		close(e.opened)
		return
	}
	var seen kind.Object // what callers of get will see
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
		if isKnown(ev, seen) {
			continue
		}
		if seen = ev.Object; ev.Deleted {
			seen = nil
		}
		if e.name != "" && seen != nil && neverChanges(seen) {
			o := seen
			e.fixed.Store(&o)
			r.notify(e)
			return
		}
		r.notify(e)
	}
}

// isKnown reports whether an event is about the known version: views begin with the present state.
func isKnown(ev client.Event, seen kind.Object) bool {
	return !ev.Gap && !ev.Deleted && seen != nil && ev.Object.GetUID() == seen.GetUID() &&
		ev.Object.GetResourceVersion() == seen.GetResourceVersion()
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
