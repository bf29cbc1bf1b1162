package control

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// restrictable is a view that can restrict its events to some objects and changes. The restricted view shares the objects of the
// whole one, so that a controller that is woken by an event finds the changed object in the whole view.
type restrictable interface {
	Only(s client.Scope, when func(old, now kind.Object) bool) client.View
}

// eventSource returns the view whose events wake a controller. Events that the filter rejects may still be among them.
func (c *Cluster) eventSource(on schema.GroupResource, of Key, when func(old, now kind.Object) bool) client.View {
	return restrict(c.views[on], of, when)
}

// restrict restricts a view to the objects of a name and to the changes that a filter accepts, as far as the view can.
func restrict(v client.View, of Key, when func(old, now kind.Object) bool) client.View {
	if n, ok := v.(restrictable); ok {
		return n.Only(client.Scope{Namespace: of.Namespace, Name: of.Name}, when)
	}
	if of == (Key{}) {
		return v
	}
	return named{v, of}
}

// named restricts a view to objects of one name, for views that cannot do so themselves.
type named struct {
	client.View
	of Key
}

func (n named) shows(o kind.Object) bool {
	return o.GetName() == n.of.Name && (n.of.Namespace == "" || o.GetNamespace() == n.of.Namespace)
}

// List yields the objects of the name.
func (n named) List(namespace string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range n.View.List(namespace) {
			if n.shows(o) && !yield(o) {
				return
			}
		}
	}
}

// Events yields the events of objects of the name, and gaps.
func (n named) Events(ctx context.Context) iter.Seq[client.Event] {
	all := n.View.Events(ctx)
	return func(yield func(client.Event) bool) {
		for ev := range all {
			if (ev.Gap || n.shows(ev.Object)) && !yield(ev) {
				return
			}
		}
	}
}
