package control

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// Cluster is what a controller sees: its views, and its way to write what it has declared.
type Cluster struct {
	name   string
	client client.Client
	views  map[schema.GroupResource]client.View
	later  sync.Map      // of resources that are followed: *followed by schema.GroupResource
	again  chan struct{} // has Follow be asked again
	may    map[schema.GroupResource][]string
	events *client.Recorder
}

// open opens the views that a controller declares.
func open(ctx context.Context, log *slog.Logger, c client.Client, ctl *Controller) (*Cluster, error) {
	component := ctl.Component
	if component == "" {
		component = ctl.Name
	}
	out := &Cluster{
		name: ctl.Name, client: c, views: map[schema.GroupResource]client.View{}, may: map[schema.GroupResource][]string{},
		events: client.NewRecorder(c, component, log), again: make(chan struct{}, 1),
	}
	for _, on := range ctl.views() {
		if on == Any() {
			continue
		}
		v, err := c.View(ctx, on)
		if err != nil {
			return nil, fmt.Errorf("controller %s: open view of %s: %w", ctl.Name, on, err)
		}
		if out.views[on] = v; ctl.Outlines {
			out.views[on] = client.Outlines(v)
		}
	}
	for _, w := range ctl.Writes {
		out.may[w.On] = append(out.may[w.On], strings.Fields(w.Do)...)
	}
	return out, nil
}

// View returns a declared view, or that of a resource which the controller follows; nil if there is none.
func (c *Cluster) View(on schema.GroupResource) client.View {
	if v := c.views[on]; v != nil {
		return v
	}
	if f := c.followed(on); f != nil {
		return f.view
	}
	return nil
}

// Open opens a view of a resource that could not be named beforehand; Reads has Any then.
func (c *Cluster) Open(ctx context.Context, on schema.GroupResource) (client.View, error) {
	return c.client.View(ctx, on)
}

// Event tells people what the controller did to an object, or could not do.
func (c *Cluster) Event(about kind.Object, eventType, reason, format string, args ...any) {
	c.events.Event(about, eventType, reason, format, args...)
}

// settle waits until the views show what a look has written.
func (c *Cluster) settle(ctx context.Context, t *client.Trail) error {
	for on, rev := range t.Writes() {
		var err error
		if v := c.views[on]; v != nil {
			err = v.Reach(ctx, rev)
		} else if f := c.followed(on); f != nil {
			err = f.reach(ctx, rev)
		}
		if err != nil {
			return fmt.Errorf("wait for the view of %s: %w", on, err)
		}
	}
	return nil
}

// declared refuses a write that the controller has not declared.
func (c *Cluster) declared(on schema.GroupResource, verb, sub string) error {
	if sub != "" {
		verb += "/" + sub
	}
	if slices.Contains(c.may[on], verb) || slices.Contains(c.may[Any()], verb) {
		return nil
	}
	return fmt.Errorf("controller %s has not declared that it may %s %s", c.name, verb, on)
}

// Get reads an object, or a subresource, as it is now, past the view.
func (c *Cluster) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	if err := c.declared(on, "get", sub); err != nil {
		return nil, err
	}
	return c.client.Get(ctx, on, namespace, name, sub)
}

// Create stores a new object.
func (c *Cluster) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	if err := c.declared(on, "create", ""); err != nil {
		return nil, err
	}
	return c.client.Create(ctx, on, obj)
}

// Update stores a changed object, or a subresource of it.
func (c *Cluster) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if err := c.declared(on, "update", sub); err != nil {
		return nil, err
	}
	return c.client.Update(ctx, on, obj, sub)
}

// Act creates a subresource.
func (c *Cluster) Act(ctx context.Context, on schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	if err := c.declared(on, "create", sub); err != nil {
		return nil, err
	}
	return c.client.Act(ctx, on, namespace, name, sub, body)
}

// Delete removes one object.
func (c *Cluster) Delete(ctx context.Context, on schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	if err := c.declared(on, "delete", ""); err != nil {
		return err
	}
	return c.client.Delete(ctx, on, namespace, name, options)
}

// DeleteAll removes all objects of a namespace.
func (c *Cluster) DeleteAll(ctx context.Context, on schema.GroupResource, namespace string, options metav1.DeleteOptions) error {
	if err := c.declared(on, "deletecollection", ""); err != nil {
		return err
	}
	return c.client.DeleteAll(ctx, on, namespace, nil, options)
}

// Get finds an object in a declared view.
func Get[T kind.Object](c *Cluster, on schema.GroupResource, namespace, name string) (T, bool) {
	o, found := c.views[on].Get(namespace, name)
	t, ok := o.(T)
	return t, found && ok
}

// Whole finds an object in a declared view with all its parts, for a controller whose views show outlines.
func Whole[T kind.Object](c *Cluster, on schema.GroupResource, namespace, name string) (T, bool) {
	o, found := client.Whole(c.views[on], namespace, name)
	t, ok := o.(T)
	return t, found && ok
}

// List yields the objects of a namespace, or all, from a declared view.
func List[T kind.Object](c *Cluster, on schema.GroupResource, namespace string) iter.Seq[T] {
	return typed[T](c.views[on].List(namespace))
}

// By yields what an index of a declared view finds.
func By[T kind.Object](c *Cluster, on schema.GroupResource, index client.Index, value string) iter.Seq[T] {
	return typed[T](c.views[on].By(index, value))
}

// Owned yields the objects whose controller an object is.
func Owned[T kind.Object](c *Cluster, on schema.GroupResource, owner kind.Object) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range By[T](c, on, client.ByOwner(), string(owner.GetUID())) {
			if metav1.IsControlledBy(o, owner) && !yield(o) {
				return
			}
		}
	}
}

func typed[T kind.Object](objects iter.Seq[kind.Object]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range objects {
			if t, ok := o.(T); ok && !yield(t) {
				return
			}
		}
	}
}
