package server

import (
	"context"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// Client gives a caller in the same process access under an identity. It passes the same stages as HTTP does.
func (s *Server) Client(who user.Info) client.Client { return &local{server: s, who: who} }

type local struct {
	server *Server
	who    user.Info
}

func (l *local) request(verb string, gr schema.GroupResource, namespace, name string) (*Request, error) {
	def := l.server.State.Def(gr)
	if def == nil {
		return nil, badRequest("no resource %s", gr)
	}
	r := &Request{Verb: verb, Def: def, Namespace: namespace, Name: name, User: l.who, Agent: l.who.GetName()}
	r.Options.Validation = metav1.FieldValidationIgnore
	r.Options.Manager = "proa"
	return r, nil
}

// View opens a cache.
func (l *local) View(ctx context.Context, gr schema.GroupResource) (client.View, error) {
	for _, verb := range []string{"list", "watch"} {
		r, err := l.request(verb, gr, "", "")
		if err != nil {
			return nil, err
		}
		if err := l.server.openLocal(ctx, r); err != nil {
			return nil, err
		}
	}
	def := l.server.State.Def(gr)
	c := l.server.State.Cache(def)
	if err := c.Fresh(ctx); err != nil {
		return nil, storeError(err)
	}
	return &view{def: def, cache: c}, nil
}

func (l *local) object(ctx context.Context, r *Request) (kind.Object, error) {
	res, err := l.server.serveLocal(ctx, r)
	if err != nil {
		return nil, err
	}
	obj, _ := res.Object.(kind.Object)
	return obj, nil
}

// Create stores a new object.
func (l *local) Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error) {
	r, err := l.request("create", gr, obj.GetNamespace(), "")
	if err != nil {
		return nil, err
	}
	r.Object = obj
	obj.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
	return l.object(ctx, r)
}

// Update stores a changed object or a subresource of it.
func (l *local) Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	r, err := l.request("update", gr, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return nil, err
	}
	if sub != "" {
		if r.Sub = r.Def.Sub(sub); r.Sub == nil {
			return nil, badRequest("%s has no subresource %s", gr, sub)
		}
	}
	r.Object = obj
	obj.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
	return l.object(ctx, r)
}

// Delete removes one object.
func (l *local) Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	r, err := l.request("delete", gr, namespace, name)
	if err != nil {
		return err
	}
	r.Options.Delete = &options
	_, err = l.server.serveLocal(ctx, r)
	return err
}

// DeleteAll removes all objects of a namespace.
func (l *local) DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, options metav1.DeleteOptions) error {
	r, err := l.request("deletecollection", gr, namespace, "")
	if err != nil {
		return err
	}
	r.Options.Delete = &options
	_, err = l.server.serveLocal(ctx, r)
	return err
}

// view is a cache as a loop sees it.
type view struct {
	def   *kind.Def
	cache *watch.Cache
}

// Get finds an object.
func (v *view) Get(namespace, name string) (kind.Object, bool) {
	e, found := v.cache.Get(v.def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return e.Object, true
}

// List yields the objects of a namespace, or all.
func (v *view) List(namespace string) iter.Seq[kind.Object] {
	entries, _ := v.cache.List(scope(v.def, namespace), nil)
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(e.Object) {
				return
			}
		}
	}
}

// Events yields the present and then the changes.
func (v *view) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for ctx.Err() == nil {
			w, state, _, err := v.cache.Watch(ctx, watch.Selection{Prefix: v.def.Prefix()}, watch.Start{State: true})
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
				continue
			}
			if !follow(ctx, w, state, yield) {
				return
			}
		}
	}
}

// follow yields until the watch ends, and says whether to start another one.
func follow(ctx context.Context, w *watch.Watcher, state []*watch.Entry, yield func(client.Event) bool) bool {
	defer w.Close()
	for _, e := range state {
		if !yield(client.Event{Object: e.Object}) {
			return false
		}
	}
	var items []watch.Item
	for {
		var err error
		if items, err = w.Next(ctx, nil, items); err != nil {
			return ctx.Err() == nil
		}
		for _, it := range items {
			if !yield(client.Event{Object: it.Event.Object(it.As), Deleted: it.As == watch.Deleted}) {
				return false
			}
		}
	}
}
