// Package server is the front door: hops 2 to 8 composed. Every change to the cluster, from HTTP or from a loop in
// the same process, passes Serve under its own identity; there is no other way in.
//
// This file shows the order of the hops. Package authn is hop 2, authz hop 3, mutate hop 4, schema and the kinds
// hop 5, validate hop 6, store hop 7, watch hop 8.
package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/audit"
	"proa.dev/server/authz"
	"proa.dev/watch"
)

// Response is the answer of the pipeline. Exactly one of Object, List and Watch is set.
type Response struct {
	Code   int
	Object runtime.Object
	List   *List
	Watch  *Stream
}

// List is a page of a collection.
type List struct {
	Meta  metav1.ListMeta
	Items []*watch.Entry
	// once says that the list is written only once. Items are let go of when they are written: they may have changed in the
	// cache since, and be held by nobody else.
	once bool
}

// written says that nobody needs an item any more.
func (l *List) written(i int) {
	if l.once {
		l.Items[i] = nil
	}
}

// Serve takes one authenticated request through hops 3 to 8.
func (s *Server) Serve(ctx context.Context, r *Request) (*Response, error) {
	if r.Clock.Record.Start.IsZero() {
		r.Clock.Begin(time.Now())
	}
	leave, err := s.queue.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.seat != nil {
		r.seat.take(leave) // until the answer is sent
	} else {
		defer leave()
	}
	if err := s.authorize(ctx, r); err != nil {
		return nil, err
	}
	if err := r.checkForNodes(); err != nil {
		return nil, err
	}
	r.Clock.Done(hop.Authorize)
	if r.Def.Deprecated != "" {
		r.Warn(r.Def.Deprecated)
	}
	if (r.Sub == nil && !r.Def.Allows(r.Verb)) || (r.Sub != nil && !r.Sub.Allows(r.Verb)) {
		return nil, methodNotAllowed()
	}
	s.heardBody(r)
	resp, err := s.verb(ctx, r)
	if errors.Is(err, watch.ErrStopped) {
		err = s.stopped(r.Def)
	}
	return resp, err
}

// verb does what a request asks for.
func (s *Server) verb(ctx context.Context, r *Request) (*Response, error) {
	switch r.Verb {
	case "get":
		return s.get(ctx, r)
	case "list":
		return s.list(ctx, r)
	case "watch":
		return s.watch(ctx, r)
	case "create":
		return s.create(ctx, r)
	case "update", "patch":
		return s.update(ctx, r)
	case "delete":
		return s.remove(ctx, r)
	case "deletecollection":
		return s.removeAll(ctx, r)
	}
	return nil, methodNotAllowed()
}

// authorize is hop 3.
func (s *Server) authorize(ctx context.Context, r *Request) error {
	a := authz.Attributes{
		User: r.User, Verb: r.Verb, Namespace: r.Namespace, IsResource: true,
		Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Name: r.Name,
	}
	if r.Sub != nil {
		a.Subresource = r.Sub.Name
	}
	if l := &r.Options.List; r.Verb == "list" || r.Verb == "watch" || r.Verb == "deletecollection" {
		a.Name = l.exact("metadata.name")
		if l.Fields != nil {
			a.FieldSelector = l.Fields.Requirements()
		}
		if l.Labels != nil {
			a.LabelSelector, _ = l.Labels.Requirements()
		}
	}
	return s.allowed(ctx, &a, r.trail)
}

func (s *Server) allowed(ctx context.Context, a *authz.Attributes, t *audit.Trail) error {
	decision, reason, err := s.Authz.Authorize(ctx, *a)
	t.Decided(decision == authz.Allow, reason, err)
	if decision == authz.Allow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return authz.Forbidden(a, reason)
}

// write is what create, update and patch have in common from hop 4 on: obj is the wanted object in the stored version, old
// the stored one or nil. Both are private to the request.
func (s *Server) write(ctx context.Context, r *Request, obj, old kind.Object, rev int64) (kind.Object, int64, error) {
	def := r.Def.Storage()
	if err := s.mutate(ctx, r, obj, old); err != nil { // hop 4
		return nil, 0, err
	}
	if old == nil {
		birth(obj) // after hop 4: who changes a new object says neither what it is called inside nor when it was made
	}
	r.Clock.Done(hop.Mutate)
	if err := r.work.Begin(ctx); err != nil {
		return nil, 0, err
	}
	err := s.check(ctx, r, obj, old) // hop 5
	r.work.End()
	if err != nil {
		return nil, 0, err
	}
	r.Clock.Done(hop.Schema)
	if err := s.validate(ctx, r, obj, old); err != nil { // hop 6
		return nil, 0, err
	}
	r.Clock.Done(hop.Validate)
	out, rev, err := s.commit(ctx, r, def, obj, old, rev) // hop 7
	r.Clock.Done(hop.Commit)
	return out, rev, err
}

// done records a write that happened.
func (s *Server) done(r *Request, obj kind.Object, rev int64, code int) {
	if r.Options.DryRun {
		return
	}
	rec := &r.Clock.Record
	rec.UID, rec.Rev, rec.Verb, rec.Resource, rec.Code = obj.GetUID(), rev, r.Verb, r.Def.Plural, code
	rec.Namespace, rec.Name, rec.User = obj.GetNamespace(), obj.GetName(), r.User.GetName()
	s.Recorder.Add(*rec)
}

func ok(obj runtime.Object) *Response { return &Response{Code: http.StatusOK, Object: obj} }
