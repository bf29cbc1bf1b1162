package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/objectmeta"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// maxTries bounds how often a write is tried again because another one was committed in between.
const maxTries = 20

// update serves PUT of an object or a subresource.
func (s *Server) update(ctx context.Context, r *Request) (*Response, error) {
	body, err := s.decode(r)
	if err != nil {
		return nil, err
	}
	if name := body.GetName(); name != r.Name {
		if name == "" {
			return nil, apistatus.BadRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name)
		}
		return nil, apistatus.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name)
	}
	pinned := body.GetResourceVersion() != ""
	once := pinned && r.Object == nil // it is tried only once, and nobody else holds an object that was decoded here
	next := &change{pinned: pinned, apply: func(old kind.Object) (kind.Object, error) {
		obj := body
		if !once {
			obj = body.DeepCopyObject().(kind.Object)
		}
		return s.project(r, old, obj)
	}}
	return s.modify(ctx, r, next)
}

// modify applies the change of an update or a patch to the stored object and writes the result. When another writer was
// faster, it starts again with the newer object. A PUT or an apply of an object that does not exist may create it.
func (s *Server) modify(ctx context.Context, r *Request, next *change) (*Response, error) {
	def := r.Def.Storage()
	key := def.Key(r.Namespace, r.Name)
	cur, found, err := s.State.Newest(ctx, def, key)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if !found {
			return s.createByUpdate(ctx, r, next)
		}
		out, rev, err := s.tryUpdate(ctx, r, cur, next)
		c, isConflict := errors.AsType[*kv.Conflict](err)
		if !isConflict || c.Key != key {
			return s.updateResponse(r, out, rev, err)
		}
		if try >= maxTries || (r.Verb == "update" && next.pinned) {
			return nil, apistatus.Modified(def, r.Name)
		}
		if found = c.Now.Rev != 0; found {
			if cur, err = s.State.Entry(def, c.Now); err != nil {
				return nil, err
			}
		}
	}
}

// updateResponse records the write and returns the object as the client sees it: in its version, or as the projection
// that it wrote.
func (s *Server) updateResponse(r *Request, out kind.Object, rev int64, err error) (*Response, error) {
	if err != nil {
		return nil, err
	}
	s.recordWrite(r, out, rev, apistatus.CodeOK)
	if r.Sub != nil && r.Sub.View != nil {
		view, err := r.Sub.View(out)
		if err != nil {
			return nil, err
		}
		view.GetObjectKind().SetGroupVersionKind(r.Sub.Body.GroupVersionKind)
		return ok(view), nil
	}
	return ok(state.FromHub(r.Def, out)), nil
}

// createByUpdate creates an object that an update or patch has not found, if that is allowed: by apply, and by PUT of
// some kinds.
func (s *Server) createByUpdate(ctx context.Context, r *Request, next *change) (*Response, error) {
	if r.Sub != nil || (r.Verb == "update" && !r.Def.CreateOnUpdate) || (r.Verb == "patch" && r.Patch != types.ApplyPatchType) {
		return nil, apistatus.NotFound(r.Def, r.Name)
	}
	empty := r.Def.Storage().New()
	obj, err := next.apply(empty)
	if err != nil {
		return nil, err
	}
	if !r.Options.DryRun { // a dry run answers with the version that the client sent
		obj.SetResourceVersion("")
	}
	if obj.GetUID() != "" {
		return nil, apierrors.NewConflict(r.Def.Resource(), r.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := matchNamespace(r, obj); err != nil {
		return nil, err
	}
	objectmeta.ClearIdentity(obj)
	if r.Patch != types.ApplyPatchType {
		obj = s.updateFieldOwners(r, empty, obj)
	}
	out, rev, err := s.write(ctx, r, obj, nil, 0)
	if c, isConflict := errors.AsType[*kv.Conflict](err); isConflict && c.Key == r.Def.Key(r.Namespace, r.Name) {
		return nil, s.nameTakenError(r.Def, r.Name, c.Now)
	}
	if err != nil {
		return nil, err
	}
	s.recordWrite(r, out, rev, apistatus.CodeCreated)
	return &Response{Code: apistatus.CodeCreated, Object: state.FromHub(r.Def, out)}, nil
}

// tryUpdate applies a change to one state of the object and writes the result.
func (s *Server) tryUpdate(ctx context.Context, r *Request, cur *watch.Entry, next *change) (kind.Object, int64, error) {
	old := cur.Object().DeepCopyObject().(kind.Object)
	r.Clock.Record.UID = old.GetUID()
	if err := r.beginWork(ctx); err != nil {
		return nil, 0, err
	}
	defer r.Work.End()
	obj, err := next.apply(old)
	if err != nil {
		r.Clock.Refuse(hop.Schema)
		return nil, 0, err
	}
	if err := s.checkIdentity(r, obj, old); err != nil {
		r.Clock.Done(hop.Schema)
		return nil, 0, err
	}
	objectmeta.KeepIdentity(obj, old)
	objectmeta.DropDuplicateOwners(obj, r.Warn)
	if r.Patch != types.ApplyPatchType {
		obj = s.updateFieldOwners(r, old, obj)
	}
	if r.Sub != nil && r.Sub.View != nil {
		objectmeta.ClearManagedTimes(r.Sub.Name, obj, old)
	}
	r.Work.End()
	r.Clock.Done(hop.Schema)
	return s.write(ctx, r, obj, old, cur.Rev)
}

// checkIdentity compares the namespace and the UID that the client sent with those of the stored object.
func (s *Server) checkIdentity(r *Request, obj, old kind.Object) error {
	if err := matchNamespace(r, obj); err != nil {
		return err
	}
	if uid := obj.GetUID(); r.Verb == "update" && uid != "" && uid != old.GetUID() {
		key := r.Def.Key(r.Namespace, r.Name)
		if r.Options.DryRun { // where upstream shows the key without its prefix
			key = strings.TrimPrefix(key, "/registry")
		}
		return apierrors.NewConflict(r.Def.Resource(), r.Name, fmt.Errorf(
			"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v",
			key, uid, old.GetUID()))
	}
	return nil
}

// checkVersion compares the resourceVersion that the client sent with that of the stored object, and sets it. As
// upstream, it does so after hop 4: plugins that refuse the change are heard first.
func checkVersion(r *Request, obj, old kind.Object) error {
	projected := r.Sub != nil && r.Sub.View != nil // a scale needs no version
	rv := obj.GetResourceVersion()
	if r.Verb == "update" && rv == "" && r.Def.Storage().RequiresResourceVersion && !projected {
		// The error names the resource in place of the kind, as upstream does.
		return apierrors.NewInvalid(schema.GroupKind{Group: r.Def.Group, Kind: r.Def.Plural}, r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if rv != "" && rv != "0" && rv != old.GetResourceVersion() {
		if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
			return err
		}
		return apistatus.Modified(r.Def, r.Name)
	}
	obj.SetResourceVersion(old.GetResourceVersion())
	return nil
}

// change is what an update or a patch wants of an object. apply returns the new object in its storage version; it does
// not change old, and may be called again with a newer one.
type change struct {
	apply  func(old kind.Object) (kind.Object, error)
	pinned bool // the client sent the resourceVersion that it has seen
}

// project turns the body of a write into the object to be stored: by conversion to the storage version, or through a
// projection such as scale.
func (s *Server) project(r *Request, old, body kind.Object) (kind.Object, error) {
	if r.Sub == nil || r.Sub.View == nil {
		return state.ToHub(r.Def, body), nil
	}
	obj := old.DeepCopyObject().(kind.Object)
	if err := r.Sub.Change(obj, body); err != nil {
		return nil, err
	}
	obj.SetResourceVersion(body.GetResourceVersion())
	if body.GetUID() != "" {
		obj.SetUID(body.GetUID())
	}
	return obj, nil
}
