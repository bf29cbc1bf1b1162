package server

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/collection"
	"proa.dev/server/computed"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// get serves GET of one object or subresource.
func (s *Server) get(ctx context.Context, r *Request) (*Response, error) {
	if r.Sub != nil && r.Sub.Connect != nil {
		return nil, errNeedsConnection
	}
	obj, err := s.findObject(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Sub != nil && r.Sub.View != nil {
		view, err := r.Sub.View(obj.DeepCopyObject().(kind.Object))
		if err != nil {
			return nil, err
		}
		view.GetObjectKind().SetGroupVersionKind(r.Sub.Body.GroupVersionKind)
		return ok(view), nil
	}
	return ok(state.FromHub(r.Def, obj)), nil
}

// findObject reads the object that the request names, at least as new as the resourceVersion of the request.
func (s *Server) findObject(ctx context.Context, r *Request) (kind.Object, error) {
	def := r.Def.Storage()
	if def.Computed != nil {
		o, found, err := s.computedQuery(r, r.Name).Get(ctx)
		if found || err != nil {
			return o, err
		}
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: def.Group, Resource: def.Singular}, r.Name)
	}
	e, found, err := s.readObject(ctx, def, def.Key(r.Namespace, r.Name), r.Options.List.ResourceVersion)
	if bad, ok := errors.AsType[*field.Error](err); ok && def.TTL != 0 {
		return nil, apistatus.BadRequest("invalid resource version: %v", bad)
	}
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, apistatus.NotFound(r.Def, r.Name)
	}
	return e.Object(), nil
}

// readObject reads an object, at least as new as a resourceVersion.
func (s *Server) readObject(ctx context.Context, def *kind.Def, key, version string) (*watch.Entry, bool, error) {
	if version == "" {
		return s.State.Newest(ctx, def, key)
	}
	cache := s.State.Cache(def)
	err := collection.WaitForVersion(ctx, cache, version)
	if late, ok := errors.AsType[*watch.TooNew](err); ok {
		return s.State.Stored(ctx, def, key, late)
	}
	if err != nil {
		return nil, false, apistatus.FromStore(err)
	}
	return s.State.Present(ctx, def, key)
}

// computedQuery returns what a request asks of a kind whose objects are computed and not stored: all of a namespace if name is empty.
func (s *Server) computedQuery(r *Request, name string) *computed.Query {
	return &computed.Query{Def: r.Def, Server: s.services(r), Namespace: r.Namespace, Name: name, Keep: r.Options.List.Filter(r.Def)}
}

// list serves GET of a collection.
func (s *Server) list(ctx context.Context, r *Request) (*Response, error) {
	l, err := s.page(ctx, r)
	if err != nil {
		return nil, err
	}
	return &Response{Code: apistatus.CodeOK, List: l}, nil
}

// page reads the selected objects of a collection, or the first ones of them when the client asks for pages.
func (s *Server) page(ctx context.Context, r *Request) (*collection.List, error) {
	if r.Def.Storage().Computed != nil {
		items, version, err := s.computed.Read(ctx, s.computedQuery(r, r.Name))
		return &collection.List{Items: items, Meta: metav1.ListMeta{ResourceVersion: version}}, err
	}
	return s.collections.Page(ctx, r.query())
}

// query returns which objects of a collection the request is about.
func (r *Request) query() *collection.Query {
	return &collection.Query{
		Def: r.Def, Namespace: r.Namespace, Options: &r.Options.List, Work: r.Work, Answer: r.AnswerMemory, Warn: r.Warn,
	}
}
