// Package localclient is the client of callers in the same process: controllers, the scheduler, node agents. Its
// requests pass the same pipeline as those over HTTP, with typed objects in place of bytes, and its views read the
// caches of the server.
package localclient

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/collection"
	"proa.dev/watch"
)

// New returns the client of a user in the same process. Its requests pass the same hops as those over HTTP.
func New(s *server.Server, who user.Info) client.Client { return &localClient{server: s, who: who} }

// localClient implements client.Client over the pipeline.
type localClient struct {
	server *server.Server
	who    user.Info
}

// request returns a request of the client's user, for an object or a collection.
func (l *localClient) request(verb string, gr schema.GroupResource, namespace, name string) (*server.Request, error) {
	def := l.server.State.Def(gr)
	if def == nil {
		return nil, apistatus.BadRequest("no resource %s", gr)
	}
	r := &server.Request{Verb: verb, Def: def, Namespace: namespace, Name: name, User: l.who, Agent: l.who.GetName()}
	r.Options.Validation = metav1.FieldValidationIgnore
	r.Options.Manager = server.FieldManager
	return r, nil
}

// View returns a view of all objects of a resource.
func (l *localClient) View(ctx context.Context, gr schema.GroupResource) (client.View, error) {
	return l.Part(ctx, gr, client.Scope{})
}

// Part returns a view of some objects of a resource. The user needs the right to list and watch them as over HTTP, with
// the field selector that the scope stands for.
func (l *localClient) Part(ctx context.Context, gr schema.GroupResource, scope client.Scope) (client.View, error) {
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
		if err := l.authorizeView(ctx, r); err != nil {
			return nil, err
		}
	}
	def := l.server.State.Def(gr)
	c := l.server.State.Cache(def)
	if err := c.WaitUntilFresh(ctx); err != nil {
		return nil, apistatus.FromStore(err)
	}
	all := &view{def: def, cache: c, sel: watch.Selection{Prefix: def.Prefix()}, show: (*watch.Entry).Object}
	if scope == (client.Scope{}) {
		return all, nil
	}
	return newScopedView(all, scope), nil
}

// object serves a request and returns the object of its response, which may be shared with the cache.
func (l *localClient) object(ctx context.Context, r *server.Request) (kind.Object, error) {
	res, err := l.serve(ctx, r)
	if err != nil {
		return nil, err
	}
	obj, _ := res.Object.(kind.Object)
	return obj, nil
}

// serveCopy serves a request and returns a copy of its object, which the caller may change.
func (l *localClient) serveCopy(ctx context.Context, r *server.Request) (kind.Object, error) {
	obj, err := l.object(ctx, r)
	if err != nil || obj == nil {
		return nil, err
	}
	return obj.DeepCopyObject().(kind.Object), nil
}

// serve takes a request through the pipeline, and adds what it wrote to the write set of the caller.
func (l *localClient) serve(ctx context.Context, r *server.Request) (*server.Response, error) {
	writes := client.WriteSetOf(ctx)
	r.SetCause(ctx)
	objects := l.beginClock(r)
	res, err := l.serveAudited(ctx, r)
	l.keepAnswer(r, res, objects)
	if rev := r.Clock.Record.Rev; rev != 0 {
		writes.Add(r.Def.Resource(), rev)
	} else if r.Verb != "get" && mayHaveWritten(r, err) {
		writes.Add(r.Def.Resource(), 0)
	}
	return res, err
}

// mayHaveWritten says that a request may have written something at a revision that is not known.
func mayHaveWritten(r *server.Request, err error) bool {
	if err == nil {
		return r.Verb == "deletecollection" || r.Sub != nil
	}
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err)
}

// Get reads the newest state of one object or subresource.
func (l *localClient) Get(ctx context.Context, gr schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	r, err := l.request("get", gr, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := l.setSubresource(r, gr, sub); err != nil {
		return nil, err
	}
	return l.serveCopy(ctx, r)
}

// setSubresource sets the subresource of a request.
func (l *localClient) setSubresource(r *server.Request, gr schema.GroupResource, sub string) error {
	if sub == "" {
		return nil
	}
	if r.Sub = r.Def.Sub(sub); r.Sub != nil {
		return nil
	}
	if r.Def.IsCustom() { // each version has subresources of its own
		for _, d := range l.server.State.VersionsOf(gr) {
			if r.Sub = d.Sub(sub); r.Sub != nil {
				r.Def = d
				return nil
			}
		}
	}
	return apistatus.BadRequest("%s has no subresource %s", gr, sub)
}

// Act performs the action of a subresource, as POST does.
func (l *localClient) Act(ctx context.Context, gr schema.GroupResource, namespace, name, sub string, body kind.Object) (kind.Object,
	error) {
	r, err := l.request("create", gr, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := l.setSubresource(r, gr, sub); err != nil {
		return nil, err
	}
	r.Object = body
	return l.object(ctx, r)
}

// Create stores a new object.
func (l *localClient) Create(ctx context.Context, gr schema.GroupResource, obj kind.Object) (kind.Object, error) {
	r, err := l.request("create", gr, obj.GetNamespace(), "")
	if err != nil {
		return nil, err
	}
	r.Object = obj
	obj.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
	return l.serveCopy(ctx, r)
}

// Update stores a changed object or a subresource of it.
func (l *localClient) Update(ctx context.Context, gr schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	r, err := l.request("update", gr, obj.GetNamespace(), obj.GetName())
	if err != nil {
		return nil, err
	}
	if err := l.setSubresource(r, gr, sub); err != nil {
		return nil, err
	}
	r.Object = obj
	if r.Sub == nil || r.Sub.Body == nil {
		obj.GetObjectKind().SetGroupVersionKind(r.Def.GroupVersionKind)
	}
	return l.serveCopy(ctx, r)
}

// Delete deletes one object.
func (l *localClient) Delete(ctx context.Context, gr schema.GroupResource, namespace, name string, options metav1.DeleteOptions) error {
	r, err := l.request("delete", gr, namespace, name)
	if err != nil {
		return err
	}
	r.Options.Delete = &options
	_, err = l.serve(ctx, r)
	return err
}

// DeleteAll deletes the objects of a namespace, or those of them that have these fields.
func (l *localClient) DeleteAll(ctx context.Context, gr schema.GroupResource, namespace string, only fields.Set,
	options metav1.DeleteOptions) error {
	r, err := l.request("deletecollection", gr, namespace, "")
	if err != nil {
		return err
	}
	if len(only) > 0 {
		if r.Options.List.Fields, err = collection.CheckFields(r.Def, fields.SelectorFromSet(only)); err != nil {
			return err
		}
	}
	r.Options.Delete = &options
	_, err = l.serve(ctx, r)
	return err
}

// List lists the objects of a resource for a user in this process. It is for resources that are computed, which have no
// views. The objects are read-only.
func List(ctx context.Context, s *server.Server, who user.Info, gr schema.GroupResource, namespace string,
	sel labels.Selector) ([]kind.Object, error) {
	l := &localClient{server: s, who: who}
	r, err := l.request("list", gr, namespace, "")
	if err != nil {
		return nil, err
	}
	r.Options.List.Labels = sel
	res, err := l.serveAudited(ctx, r)
	if err != nil {
		return nil, err
	}
	out := make([]kind.Object, len(res.List.Items))
	for i, e := range res.List.Items {
		out[i] = e.Object()
	}
	return out, nil
}
