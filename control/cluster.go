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
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
)

// Cluster is the cluster as a controller sees it: the views that it has declared, and a client that refuses writes that it
// has not declared.
type Cluster struct {
	name    string
	client  client.Client
	views   map[schema.GroupResource]client.View
	dynamic sync.Map    // the dynamic views: *dynamicView by schema.GroupResource
	refresh wait.Signal // makes the engine list the resources with dynamic views once more
	allowed map[schema.GroupResource][]string
	events  *client.Recorder
}

// open opens the views that a controller declares.
func open(ctx context.Context, log *slog.Logger, c client.Client, ctl *Controller) (*Cluster, error) {
	component := ctl.Component
	if component == "" {
		component = ctl.Name
	}
	out := &Cluster{
		name: ctl.Name, client: c, views: map[schema.GroupResource]client.View{}, allowed: map[schema.GroupResource][]string{},
		events: client.NewRecorder(c, component, log), refresh: wait.NewSignal(),
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
		out.allowed[w.On] = append(out.allowed[w.On], strings.Fields(w.Do)...)
	}
	return out, nil
}

// View returns the view of a resource that the controller has declared or that has a dynamic view; nil if there is none.
func (c *Cluster) View(on schema.GroupResource) client.View {
	if v := c.views[on]; v != nil {
		return v
	}
	if f := c.dynamicView(on); f != nil {
		return f.view
	}
	return nil
}

// Open opens a view of a resource that the controller could not name beforehand; its Reads must contain Any().
func (c *Cluster) Open(ctx context.Context, on schema.GroupResource) (client.View, error) {
	return c.client.View(ctx, on)
}

// Event records an Event about what the controller did to an object, or failed to do.
func (c *Cluster) Event(about kind.Object, eventType, reason, format string, args ...any) {
	c.events.Event(about, eventType, reason, format, args...)
}

// reachWrites waits until the views show every write of a write set.
func (c *Cluster) reachWrites(ctx context.Context, t *client.WriteSet) error {
	for on, rev := range t.Revisions() {
		var err error
		if v := c.views[on]; v != nil {
			err = v.Reach(ctx, rev)
		} else if f := c.dynamicView(on); f != nil {
			err = f.reach(ctx, rev)
		}
		if err != nil {
			return fmt.Errorf("wait for the view of %s: %w", on, err)
		}
	}
	return nil
}

// checkDeclared returns an error for a request that the controller has not declared in Writes.
func (c *Cluster) checkDeclared(on schema.GroupResource, verb, sub string) error {
	if sub != "" {
		verb += "/" + sub
	}
	if slices.Contains(c.allowed[on], verb) || slices.Contains(c.allowed[Any()], verb) {
		return nil
	}
	return fmt.Errorf("controller %s has not declared that it may %s %s", c.name, verb, on)
}

// Get reads an object, or a subresource, from the server instead of a view, which may lag behind.
func (c *Cluster) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	if err := c.checkDeclared(on, "get", sub); err != nil {
		return nil, err
	}
	defer beginRequest(ctx)()
	return c.client.Get(ctx, on, namespace, name, sub)
}

// Create stores a new object.
func (c *Cluster) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	if err := c.checkDeclared(on, "create", ""); err != nil {
		return nil, err
	}
	end, err := beginWrite(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return c.client.Create(ctx, on, obj)
}

// Update stores a changed object, or a subresource of it.
func (c *Cluster) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if err := c.checkDeclared(on, "update", sub); err != nil {
		return nil, err
	}
	end, err := beginWrite(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return c.client.Update(ctx, on, obj, sub)
}

// Act creates a subresource, such as pods/binding.
func (c *Cluster) Act(ctx context.Context, on schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	if err := c.checkDeclared(on, "create", sub); err != nil {
		return nil, err
	}
	end, err := beginWrite(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return c.client.Act(ctx, on, namespace, name, sub, body)
}

// Delete removes one object.
func (c *Cluster) Delete(ctx context.Context, on schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	if err := c.checkDeclared(on, "delete", ""); err != nil {
		return err
	}
	end, err := beginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	return c.client.Delete(ctx, on, namespace, name, options)
}

// DeleteAll removes all objects of a namespace.
func (c *Cluster) DeleteAll(ctx context.Context, on schema.GroupResource, namespace string, options metav1.DeleteOptions) error {
	if err := c.checkDeclared(on, "deletecollection", ""); err != nil {
		return err
	}
	end, err := beginWrite(ctx)
	if err != nil {
		return err
	}
	defer end()
	return c.client.DeleteAll(ctx, on, namespace, nil, options)
}

// Get returns an object from a declared view.
func Get[T kind.Object](c *Cluster, on schema.GroupResource, namespace, name string) (T, bool) {
	o, found := c.views[on].Get(namespace, name)
	t, ok := o.(T)
	return t, found && ok
}

// Whole returns the complete object from a declared view, for a controller whose views show outlines.
func Whole[T kind.Object](c *Cluster, on schema.GroupResource, namespace, name string) (T, bool) {
	o, found := client.WholeObject(c.views[on], namespace, name)
	t, ok := o.(T)
	return t, found && ok
}

// List yields the objects of a namespace, or of all namespaces if it is empty, from a declared view.
func List[T kind.Object](c *Cluster, on schema.GroupResource, namespace string) iter.Seq[T] {
	return typed[T](c.views[on].List(namespace))
}

// By yields the objects that an index of a declared view has under a value.
func By[T kind.Object](c *Cluster, on schema.GroupResource, index client.Index, value string) iter.Seq[T] {
	return typed[T](c.views[on].By(index, value))
}

// Owned yields the objects whose controller owner reference names owner.
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
