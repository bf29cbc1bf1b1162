// Package server is the request pipeline: hops 2 to 8 composed. Every change to the cluster, from HTTP or from a
// controller in the same process, passes Serve under its own identity; there is no other way in. The pipeline knows
// nothing of HTTP: a Request comes in, a Response or an error goes out.
//
// This file shows the order. Each hop has a file of its own, and so has each verb:
//
//	queue.go      wait for a seat                          create.go       a new object, a review, an action
//	authorize.go  hop 3: may the user do it?               update.go       replace an object; also what patches end in
//	decode.go     hop 5, first half: body to object        patch.go        the four kinds of PATCH, apply among them
//	mutate.go     hop 4: admission that changes            delete.go       one object or a collection
//	schema.go     hop 5, second half: kind, field owners   read.go         get and list
//	validate.go   hop 6: admission that refuses            watch.go        hop 8 as a client sees it
//	commit.go     hop 7: one transaction                   connect.go      streams to nodes and Pods
//	record.go     what is recorded of a write
//
// Around it: package state holds the objects that the pipeline serves from, collection reads lists of them, decode
// reads bodies, encode writes answers, apistatus makes errors. Two adapters call Serve: httpapi for clients over HTTP
// (hop 2 is there) and localclient for callers in this process.
package server

import (
	"context"
	"errors"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/collection"
	"proa.dev/server/objectmeta"
	"proa.dev/watch"
)

// Response is the answer of the pipeline. Exactly one of Object, List and Watch is set.
type Response struct {
	Code   int
	Object runtime.Object
	List   *collection.List
	Watch  *Stream
}

// Serve takes one authenticated request through hops 3 to 8, and records a write that is refused.
func (s *Server) Serve(ctx context.Context, r *Request) (*Response, error) {
	resp, err := s.serve(ctx, r)
	if err != nil {
		s.RecordRefusal(ctx, r, err)
	}
	return resp, err
}

// serve waits for a seat, asks hop 3 and calls the function of the verb.
func (s *Server) serve(ctx context.Context, r *Request) (*Response, error) {
	leave, err := s.enterQueue(ctx, r)
	if err != nil {
		r.Clock.Refuse(hop.Authorize)
		return nil, err
	}
	if r.KeepSeat != nil {
		r.KeepSeat(leave) // until the answer is sent
	} else {
		defer leave()
	}
	if err := s.Authorize(ctx, r); err != nil {
		r.Clock.Refuse(hop.Authorize)
		return nil, err
	}
	if err := r.checkNodeSelector(); err != nil {
		return nil, err
	}
	r.Clock.Done(hop.Authorize)
	if r.Def.Deprecated != "" {
		r.Warn(r.Def.Deprecated)
	}
	if (r.Sub == nil && !r.Def.Serves(r.Verb)) || (r.Sub != nil && !r.Sub.Serves(r.Verb)) {
		return nil, apistatus.MethodNotAllowed()
	}
	s.auditRequestBody(r)
	resp, err := s.serveVerb(ctx, r)
	if errors.Is(err, watch.ErrStopped) {
		err = s.State.StoppedError(r.Def)
	}
	return resp, err
}

// serveVerb calls the function of the request's verb.
func (s *Server) serveVerb(ctx context.Context, r *Request) (*Response, error) {
	switch r.Verb {
	case "get":
		return s.get(ctx, r)
	case "list":
		return s.list(ctx, r)
	case "watch":
		return s.watch(ctx, r)
	case "create":
		return s.create(ctx, r)
	case "update":
		return s.update(ctx, r)
	case "patch":
		return s.patch(ctx, r)
	case "delete":
		return s.delete(ctx, r)
	case "deletecollection":
		return s.deleteCollection(ctx, r)
	}
	return nil, apistatus.MethodNotAllowed()
}

// write takes an object through hops 4 to 7. Create, update and patch end here: obj is the wanted object in its storage
// version, old the stored object, or nil when obj is new, and rev the revision of old. Both objects are private to the
// request.
func (s *Server) write(ctx context.Context, r *Request, obj, old kind.Object, rev int64) (kind.Object, int64, error) {
	if err := s.mutate(ctx, r, obj, old); err != nil { // hop 4
		r.Clock.Refuse(hop.Mutate)
		return nil, 0, err
	}
	if old == nil {
		objectmeta.AssignIdentity(obj) // after hop 4: an admission plugin does not choose the UID or the creation time
	}
	r.Clock.Done(hop.Mutate)
	if old != nil {
		if err := checkVersion(r, obj, old); err != nil {
			return nil, 0, err
		}
	}
	if err := r.beginWork(ctx); err != nil {
		return nil, 0, err
	}
	err := s.checkKind(ctx, r, obj, old) // hop 5
	r.Work.End()
	if err != nil {
		r.Clock.Refuse(hop.Schema)
		return nil, 0, err
	}
	r.Clock.Done(hop.Schema)
	if err := s.validate(ctx, r, obj, old); err != nil { // hop 6
		r.Clock.Refuse(hop.Validate)
		return nil, 0, err
	}
	r.Clock.Done(hop.Validate)
	if v, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64); old == nil && err == nil && v != 0 && !r.Options.DryRun {
		r.Clock.Refuse(hop.Commit)
		return nil, 0, errors.New("resourceVersion should not be set on objects to be created")
	}
	out, rev, err := s.commit(ctx, r, obj, old, rev) // hop 7
	if err != nil {
		if r.Clock.Record.Refused == 0 {
			r.Clock.Refuse(hop.Commit)
		}
		return nil, 0, err
	}
	r.Clock.Done(hop.Commit)
	return out, rev, nil
}

// ok returns the response that is an object with code 200.
func ok(obj runtime.Object) *Response { return &Response{Code: apistatus.CodeOK, Object: obj} }
