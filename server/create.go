package server

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/objectmeta"
	"proa.dev/server/state"
)

// create serves POST: it stores a new object, answers a review such as SubjectAccessReview, or performs an action such
// as binding a Pod.
func (s *Server) create(ctx context.Context, r *Request) (*Response, error) {
	if r.Sub != nil && r.Sub.Connect != nil {
		return nil, errNeedsConnection
	}
	if err := r.beginWork(ctx); err != nil {
		return nil, err
	}
	obj, err := s.decode(r)
	r.Work.End()
	if err != nil {
		return nil, err
	}
	if r.Clock.Record.Name = obj.GetName(); r.Clock.Record.Name == "" {
		r.Clock.Record.Name = obj.GetGenerateName()
	}
	if err := matchNamespace(r, obj); err != nil {
		return nil, err
	}
	switch {
	case r.Sub != nil:
		return s.performAction(ctx, r, obj)
	case r.Def.Act != nil:
		call := &kind.Call{Namespace: r.Namespace, Name: obj.GetName(), Body: obj, DryRun: r.Options.DryRun}
		return actionResponse(r.Def.Act(ctx, s.services(r), call))
	case r.Def.Transient:
		return s.answerReview(ctx, r, obj)
	}
	return s.createObject(ctx, r, obj)
}

// matchNamespace sets the namespace of the object to that of the request when it has none, and refuses another one.
func matchNamespace(r *Request, obj kind.Object) error {
	if r.Def.Scope == kind.Cluster && (r.Sub == nil || r.Sub.Body == nil) {
		obj.SetNamespace("")
		return nil
	}
	switch obj.GetNamespace() {
	case r.Namespace:
	case "":
		obj.SetNamespace(r.Namespace)
	default:
		return apistatus.BadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// createObject stores a new object, which is in the version of the request. A generated name that is taken is generated
// anew.
func (s *Server) createObject(ctx context.Context, r *Request, obj kind.Object) (*Response, error) {
	objectmeta.DropDuplicateOwners(obj, r.Warn)
	obj = state.ToHub(r.Def, obj)
	objectmeta.ClearIdentity(obj)
	if err := r.beginWork(ctx); err != nil {
		return nil, err
	}
	obj = s.updateFieldOwners(r, r.Def.Storage().New(), obj)
	r.Work.End()
	r.Clock.Done(hop.Schema)
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for try := 0; ; try++ {
		next := obj
		if generated {
			next = obj.DeepCopyObject().(kind.Object)
			next.SetName(objectmeta.GenerateName(obj.GetGenerateName()))
			if r.Def.NoNameSuffix {
				next.SetName(obj.GetGenerateName())
			}
		}
		out, rev, err := s.write(ctx, r, next, nil, 0)
		if c, isConflict := errors.AsType[*kv.Conflict](err); isConflict && c.Key == r.Def.Key(next.GetNamespace(), next.GetName()) {
			if generated && try < 7 {
				continue
			}
			return nil, s.nameTakenError(r.Def, next.GetName(), c.Now)
		}
		if err != nil {
			return nil, err
		}
		s.recordWrite(r, out, rev, apistatus.CodeCreated)
		return &Response{Code: apistatus.CodeCreated, Object: state.FromHub(r.Def, out)}, nil
	}
}

// nameTakenError returns the error for a new object whose name is taken, possibly by an object that cannot be decoded.
func (s *Server) nameTakenError(def *kind.Def, name string, now kv.Pair) error {
	if _, err := s.State.Entry(def.Storage(), now); now.Value != nil && err != nil {
		return unreadableExists(def, name, err)
	}
	return apierrors.NewAlreadyExists(def.Resource(), name)
}

// answerReview validates and answers an object that is a question and is not stored.
func (s *Server) answerReview(ctx context.Context, r *Request, obj kind.Object) (*Response, error) {
	objectmeta.ClearIdentity(obj)
	if errs := r.Def.Validate(obj, nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: r.Def.Group}, "", errs)
	}
	obj = s.updateFieldOwners(r, r.Def.New(), obj)
	if err := r.Def.Answer(ctx, s.services(r), obj); err != nil {
		return nil, err
	}
	return &Response{Code: apistatus.CodeCreated, Object: obj}, nil
}

// performAction calls the action of a subresource, after admission of its body.
func (s *Server) performAction(ctx context.Context, r *Request, body kind.Object) (*Response, error) {
	parent, err := s.State.Get(ctx, r.Def.Storage().Resource(), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if err := s.mutate(ctx, r, body, nil); err != nil {
		r.Clock.Refuse(hop.Mutate)
		return nil, err
	}
	r.Clock.Done(hop.Mutate)
	if err := s.validate(ctx, r, body, nil); err != nil {
		r.Clock.Refuse(hop.Validate)
		return nil, err
	}
	r.Clock.Done(hop.Validate)
	if r.Sub.Body != nil && r.Sub.Body.Echo {
		body = s.updateFieldOwners(r, r.Sub.Body.New(), body)
	}
	call := &kind.Call{Namespace: r.Namespace, Name: r.Name, Body: body, DryRun: r.Options.DryRun}
	return actionResponse(r.Sub.Do(ctx, s.services(r), call, parent))
}

// actionResponse returns the response of an action: the object that it returns, or a Status that says success.
func actionResponse(out kind.Object, err error) (*Response, error) {
	if err != nil {
		return nil, err
	}
	if out == nil {
		return &Response{Code: apistatus.CodeCreated, Object: successStatus(apistatus.CodeCreated)}, nil
	}
	return &Response{Code: apistatus.CodeCreated, Object: out}, nil
}

// successStatus returns a Status that says success.
func successStatus(code int32) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: code}
}
