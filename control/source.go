package control

import (
	"context"
	"iter"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// narrow is a view that can show a part of itself: of the same objects at the same time, so that who is woken by the part finds in the
// whole what woke it. That is why it is not a view of its own. What when refuses wakes nobody.
type narrow interface {
	Only(s client.Scope, when func(old, now kind.Object) bool) client.View
}

// source is the view whose changes wake a controller. Those that do not matter may be among them still.
func (c *Cluster) source(on schema.GroupResource, of Key, when func(old, now kind.Object) bool) client.View {
	return sourceOf(c.views[on], of, when)
}

// sourceOf is the part of a view whose changes wake a controller.
func sourceOf(v client.View, of Key, when func(old, now kind.Object) bool) client.View {
	if n, ok := v.(narrow); ok {
		return n.Only(client.Scope{Namespace: of.Namespace, Name: of.Name}, when)
	}
	if of == (Key{}) {
		return v
	}
	return named{v, of}
}

// named shows the objects of a name in a view that cannot do that itself.
type named struct {
	client.View
	of Key
}

func (n named) shows(o kind.Object) bool {
	return o.GetName() == n.of.Name && (n.of.Namespace == "" || o.GetNamespace() == n.of.Namespace)
}

// List yields those of the name.
func (n named) List(namespace string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range n.View.List(namespace) {
			if n.shows(o) && !yield(o) {
				return
			}
		}
	}
}

// Events yields those of the name, and gaps.
func (n named) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for ev := range n.View.Events(ctx) {
			if (ev.Gap || n.shows(ev.Object)) && !yield(ev) {
				return
			}
		}
	}
}
