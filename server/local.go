package server

import (
	"context"
	"errors"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// Client gives a caller in the same process access under an identity. It passes the same stages as HTTP does.
func (s *Server) Client(who user.Info) client.Client { return &local{server: s, who: who} }

// self is the name under which the server and its loops own fields.
const self = "proa"

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
	r.Options.Manager = self
	return r, nil
}

// View opens a cache.
func (l *local) View(ctx context.Context, gr schema.GroupResource) (client.View, error) {
	return l.Part(ctx, gr, client.Scope{})
}

// Part opens a cache and looks at a part of it. It is asked for as a client over HTTP would ask, by a field selector.
func (l *local) Part(ctx context.Context, gr schema.GroupResource, scope client.Scope) (client.View, error) {
	for _, verb := range []string{"list", "watch"} {
		r, err := l.request(verb, gr, scope.Namespace, scope.Name)
		if err != nil {
			return nil, err
		}
		switch {
		case scope.Node != "":
			r.Options.List.Fields = fields.OneTermEqualSelector("spec.nodeName", scope.Node)
		case scope.Name != "":
			r.Options.List.Fields = fields.OneTermEqualSelector("metadata.name", scope.Name)
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
	all := &view{def: def, cache: c, sel: watch.Selection{Prefix: def.Prefix()}, show: (*watch.Entry).Object}
	if scope == (client.Scope{}) {
		return all, nil
	}
	return newPart(all, scope), nil
}

func (l *local) object(ctx context.Context, r *Request) (kind.Object, error) {
	res, err := l.serve(ctx, r)
	if err != nil {
		return nil, err
	}
	obj, _ := res.Object.(kind.Object)
	return obj, nil
}

// own serves a request and copies the object, which the cache may have too.
func (l *local) own(ctx context.Context, r *Request) (kind.Object, error) {
	obj, err := l.object(ctx, r)
	if err != nil || obj == nil {
		return nil, err
	}
	return obj.DeepCopyObject().(kind.Object), nil
}

// serve takes a request through the pipeline, and leaves on the caller's trail what it wrote.
func (l *local) serve(ctx context.Context, r *Request) (*Response, error) {
	trail := client.TrailOf(ctx)
	r.causedBy(ctx)
	res, err := l.server.serveLocal(ctx, r)
	if rev := r.Clock.Record.Rev; rev != 0 {
		trail.Wrote(r.Def.Resource(), rev)
	} else if r.Verb != "get" && unsure(r, err) {
		trail.Wrote(r.Def.Resource(), 0)
	}
	return res, err
}

// causedBy notes the write that led to this one.
func (r *Request) causedBy(ctx context.Context) {
	if t := client.TrailOf(ctx); t != nil {
		r.Clock.Record.CauseUID, r.Clock.Record.CauseRev = t.CauseUID, t.CauseRev
	}
}

// unsure says that a request may have written at a revision that is not known.
func unsure(r *Request, err error) bool {
	if err == nil {
		return r.Verb == "deletecollection" || r.Sub != nil
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err)
}

// Get reads one object or subresource, fresh.
func (l *local) Get(ctx context.Context, gr schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	r, err := l.request("get", gr, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := l.under(r, gr, sub); err != nil {
		return nil, err
	}
	return l.own(ctx, r)
}

// under sets the subresource of a request.
func (l *local) under(r *Request, gr schema.GroupResource, sub string) error {
	if sub == "" {
		return nil
	}
	if r.Sub = r.Def.Sub(sub); r.Sub != nil {
		return nil
	}
	if r.Def.IsCustom() { // each version has subresources of its own
		for _, d := range l.server.State.versions(gr) {
			if r.Sub = d.Sub(sub); r.Sub != nil {
				r.Def = d
				return nil
			}
		}
	}
	return badRequest("%s has no subresource %s", gr, sub)
}

// Act creates a subresource.
func (l *local) Act(ctx context.Context, gr schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object, error) {
	r, err := l.request("create", gr, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := l.under(r, gr, sub); err != nil {
		return nil, err
	}
	r.Object = body
	return l.object(ctx, r)
}

// Create stores a new object.
func (l *local) Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error) {
	r, err := l.request("create", gr, obj.GetNamespace(), "")
	if err != nil {
		return nil, err
	}
	r.Object = obj
	obj.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
	return l.own(ctx, r)
}

// Update stores a changed object or a subresource of it.
func (l *local) Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	r, err := l.request("update", gr, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return nil, err
	}
	if err := l.under(r, gr, sub); err != nil {
		return nil, err
	}
	r.Object = obj
	if r.Sub == nil || r.Sub.Body == nil {
		obj.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
	}
	return l.own(ctx, r)
}

// Delete removes one object.
func (l *local) Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	r, err := l.request("delete", gr, namespace, name)
	if err != nil {
		return err
	}
	r.Options.Delete = &options
	_, err = l.serve(ctx, r)
	return err
}

// DeleteAll removes the objects of a namespace.
func (l *local) DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, only fields.Set, options metav1.DeleteOptions) error {
	r, err := l.request("deletecollection", gr, namespace, "")
	if err != nil {
		return err
	}
	if len(only) > 0 {
		if r.Options.List.Fields, err = r.checkFields(fields.SelectorFromSet(only)); err != nil {
			return err
		}
	}
	r.Options.Delete = &options
	_, err = l.serve(ctx, r)
	return err
}

// view is a cache as a loop sees it.
type view struct {
	def   *kind.Def
	cache *watch.Cache
	sel   watch.Selection // what its events are about
	show  func(*watch.Entry) kind.Object
}

// Outlines is the view with outlines in the place of objects.
func (v *view) Outlines() client.View {
	own := *v
	own.show = (*watch.Entry).Outline
	return &own
}

// Get finds an object.
func (v *view) Get(namespace, name string) (kind.Object, bool) {
	e, found := v.cache.Get(v.def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return v.show(e), true
}

// Whole finds an object that may be shown as an outline otherwise.
func (v *view) Whole(namespace, name string) (kind.Object, bool) {
	e, found := v.cache.Get(v.def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return e.Object(), true
}

// List yields the objects of a namespace, or all.
func (v *view) List(namespace string) iter.Seq[kind.Object] {
	entries, _ := v.cache.List(scope(v.def, namespace), nil)
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(v.show(e)) {
				return
			}
		}
	}
}

// By yields what an index finds.
func (v *view) By(index client.Index, value string) iter.Seq[kind.Object] {
	entries := v.cache.By(index.Name, index.Of, value)
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(v.show(e)) {
				return
			}
		}
	}
}

// Unreadable returns the keys of the objects that cannot be decoded.
func (v *view) Unreadable(namespace string) []string {
	return v.cache.UnreadableKeys(scope(v.def, namespace))
}

// Reach waits for a revision, or for the present.
func (v *view) Reach(ctx context.Context, rev int64) error {
	if rev == 0 {
		return v.cache.Fresh(ctx)
	}
	return v.cache.WaitFor(ctx, rev)
}

// Events yields the present and then the changes, until ctx ends or the server has stopped. A watch that was ended because it
// lagged goes on where it was; when that is no longer possible, there is a gap.
func (v *view) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		start, seen := watch.Start{State: true}, int64(0)
		for ctx.Err() == nil {
			w, state, rev, err := v.cache.Watch(ctx, v.sel, start)
			if _, old := errors.AsType[*watch.TooOld](err); old {
				start = watch.Start{State: true}
				continue
			}
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
				continue
			}
			if start.State {
				if seen > 0 && !yield(client.Event{Gap: true, Rev: rev}) {
					w.Close()
					return
				}
				seen = rev
			}
			if !v.follow(ctx, w, state, &seen, yield) {
				return
			}
			start = watch.Start{After: seen}
		}
	}
}

// follow yields until the watch ends, and says whether to start another one. Then seen is the revision up to which every event was
// yielded: a watch ends between two revisions.
func (v *view) follow(ctx context.Context, w *watch.Watcher, state []*watch.Entry, seen *int64, yield func(client.Event) bool) bool {
	defer w.Close()
	for _, e := range state {
		if !yield(client.Event{Object: v.show(e), Rev: e.Rev}) {
			return false
		}
	}
	var items []watch.Item
	for {
		var err error
		if items, err = w.Next(ctx, nil, items); err != nil {
			return ctx.Err() == nil && !errors.Is(err, watch.ErrStopped)
		}
		for _, it := range items {
			ev := client.Event{Object: v.show(it.Event.Now), Deleted: it.Event.Type == watch.Deleted, Rev: it.Event.Rev}
			if it.Event.Prev != nil {
				ev.Old = v.show(it.Event.Prev)
			}
			if !yield(ev) {
				return false
			}
			*seen = ev.Rev
		}
	}
}
