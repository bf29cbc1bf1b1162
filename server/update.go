package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/schema"
	"proa.dev/watch"
)

// maxTries bounds how often a write starts again because another one was faster.
const maxTries = 20

// update serves PUT and the four patches, on the object or on a subresource.
func (s *Server) update(ctx context.Context, r *Request) (*Response, error) {
	next, err := s.change(r)
	if err != nil {
		return nil, err
	}
	def := r.Def.Storage()
	key := def.Key(r.Namespace, r.Name)
	cache := s.State.Cache(def)
	if err := cache.Fresh(ctx); err != nil {
		return nil, storeError(err)
	}
	if err := s.State.reconvert(ctx, def, cache, key); err != nil {
		return nil, err
	}
	cur, found, err := lookUp(cache, key)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if !found {
			return s.createByUpdate(ctx, r, next)
		}
		out, rev, err := s.updateOnce(ctx, r, cur, next)
		c, lost := errors.AsType[*kv.Conflict](err)
		if !lost || c.Key != key {
			return s.updated(r, out, rev, err)
		}
		if try >= maxTries || (r.Verb == "update" && next.pinned) {
			return nil, modified(def, r.Name)
		}
		if found = c.Now.Rev != 0; found {
			if cur, err = s.State.entry(def, c.Now); err != nil {
				return nil, err
			}
		}
	}
}

func (s *Server) updated(r *Request, out kind.Object, rev int64, err error) (*Response, error) {
	if err != nil {
		return nil, err
	}
	s.done(r, out, rev, http.StatusOK)
	if r.Sub != nil && r.Sub.View != nil {
		view, err := r.Sub.View(out)
		if err != nil {
			return nil, err
		}
		view.GetObjectKind().SetGroupVersionKind(r.Sub.Body.GroupVersionKind)
		return ok(view), nil
	}
	return ok(fromHub(r.Def, out)), nil
}

// createByUpdate is what happens when the object is not there: a PUT or an apply may make it.
func (s *Server) createByUpdate(ctx context.Context, r *Request, next *change) (*Response, error) {
	if r.Sub != nil || (r.Verb == "update" && !r.Def.CreateOnUpdate) || (r.Verb == "patch" && r.Patch != types.ApplyPatchType) {
		return nil, notFound(r.Def, r.Name)
	}
	empty := r.Def.Storage().New()
	obj, err := next.make(empty)
	if err != nil {
		return nil, err
	}
	if !r.Options.DryRun { // which answers with what the client says
		obj.SetResourceVersion("")
	}
	if obj.GetUID() != "" {
		return nil, apierrors.NewConflict(r.Def.Resource(), r.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := matchNamespace(r, obj); err != nil {
		return nil, err
	}
	wipe(obj)
	if r.Patch != types.ApplyPatchType {
		obj = s.own(r, empty, obj)
	}
	out, rev, err := s.write(ctx, r, obj, nil, 0)
	if c, lost := errors.AsType[*kv.Conflict](err); lost && c.Key == r.Def.Key(r.Namespace, r.Name) {
		return nil, s.taken(r.Def, r.Name, c.Now)
	}
	if err != nil {
		return nil, err
	}
	s.done(r, out, rev, http.StatusCreated)
	return &Response{Code: http.StatusCreated, Object: fromHub(r.Def, out)}, nil
}

// updateOnce tries the change against one state of the object.
func (s *Server) updateOnce(ctx context.Context, r *Request, cur *watch.Entry, next *change) (kind.Object, int64, error) {
	old := cur.Object().DeepCopyObject().(kind.Object)
	if err := r.work.Begin(ctx); err != nil {
		return nil, 0, err
	}
	defer r.work.End()
	obj, err := next.make(old)
	if err != nil {
		return nil, 0, err
	}
	if err := s.precondition(r, obj, old); err != nil {
		return nil, 0, err
	}
	keepIdentity(obj, old)
	dedupeOwners(r, obj)
	if r.Patch != types.ApplyPatchType {
		obj = s.own(r, old, obj)
	}
	if r.Sub != nil && r.Sub.View != nil {
		forgetTimes(r.Sub.Name, obj, old)
	}
	r.work.End()
	r.Clock.Done(hop.Schema)
	return s.write(ctx, r, obj, old, cur.Rev)
}

// forgetTimes takes away when somebody became an owner through a projection, which clients were never told.
func forgetTimes(sub string, obj, old kind.Object) {
	entries := obj.GetManagedFields()
	for i := range entries {
		e := &entries[i]
		if e.Subresource != sub {
			continue
		}
		e.Time = nil
		for _, was := range old.GetManagedFields() {
			if was.Subresource == sub && was.Manager == e.Manager && was.Operation == e.Operation && was.APIVersion == e.APIVersion {
				e.Time = was.Time
			}
		}
	}
	obj.SetManagedFields(entries)
}

// keepIdentity gives an object what a client may leave out of an update and cannot change by it.
func keepIdentity(obj, old kind.Object) {
	obj.SetResourceVersion(old.GetResourceVersion())
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if old.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	}
	if old.GetDeletionGracePeriodSeconds() != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
}

// precondition compares what the client knows of the object with what is stored.
func (s *Server) precondition(r *Request, obj, old kind.Object) error {
	if err := matchNamespace(r, obj); err != nil {
		return err
	}
	projected := r.Sub != nil && r.Sub.View != nil // a scale needs no version
	if r.Verb == "update" && obj.GetResourceVersion() == "" && r.Def.Storage().Conditional && !projected {
		// The resource stands where the kind is expected, as clients know it.
		return apierrors.NewInvalid(runtimeschema.GroupKind{Group: r.Def.Group, Kind: r.Def.Plural}, r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != "0" && rv != old.GetResourceVersion() {
		if _, err := strconv.ParseUint(rv, 10, 64); err != nil {
			return err
		}
		return modified(r.Def, r.Name)
	}
	if uid := obj.GetUID(); r.Verb == "update" && uid != "" && uid != old.GetUID() {
		key := r.Def.Key(r.Namespace, r.Name)
		if r.Options.DryRun { // clients see another form of the key then
			key = strings.TrimPrefix(key, "/registry")
		}
		return apierrors.NewConflict(r.Def.Resource(), r.Name, fmt.Errorf(
			"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %v, UID in object meta: %v",
			key, uid, old.GetUID()))
	}
	return nil
}

// change is the wanted change of an update: make computes the new stored object from the old one, which it does
// not change, as often as needed.
type change struct {
	make   func(old kind.Object) (kind.Object, error)
	pinned bool // the client said which revision it has seen
}

// change reads the body of an update or patch.
func (s *Server) change(r *Request) (*change, error) {
	if r.Verb == "patch" {
		return s.patch(r)
	}
	body, err := s.decode(r)
	if err != nil {
		return nil, err
	}
	if name := body.GetName(); name != r.Name {
		if name == "" {
			return nil, badRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", r.Name)
		}
		return nil, badRequest("the name of the object (%s) does not match the name on the URL (%s)", name, r.Name)
	}
	pinned := body.GetResourceVersion() != ""
	once := pinned && r.Object == nil // what is pinned is tried once, and nobody else has what came over the wire
	return &change{pinned: pinned, make: func(old kind.Object) (kind.Object, error) {
		obj := body
		if !once {
			obj = body.DeepCopyObject().(kind.Object)
		}
		return s.project(r, old, obj)
	}}, nil
}

// project turns the new body into the new stored object: by conversion, or through a projection such as scale.
func (s *Server) project(r *Request, old, body kind.Object) (kind.Object, error) {
	if r.Sub == nil || r.Sub.View == nil {
		return toHub(r.Def, body), nil
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

// check is the second half of hop 5: what the kind itself demands of a write.
func (s *Server) check(ctx context.Context, r *Request, obj, old kind.Object) error {
	def := r.Def.Storage()
	if old != nil {
		obj.SetSelfLink("")
		schema.KeepTimes(old, obj)
	}
	var errs field.ErrorList
	var warn func(obj, old kind.Object) []string
	var allow func(ctx context.Context, d kind.Door, obj, old kind.Object) field.ErrorList
	if r.Sub != nil && r.Sub.View == nil {
		r.Sub.Prepare(obj, old)
		errs, warn, allow = r.Sub.Validate(obj, old), r.Sub.Warn, r.Sub.Allow
	} else {
		def.Prepare(obj, old)
		if def.PrepareFor != nil {
			def.PrepareFor(r.User, obj, old)
		}
		errs, warn, allow = s.validateAs(r.Def, obj, old), def.Warn, def.Allow
	}
	if allow != nil && (len(errs) == 0 || def.AllowFirst) {
		errs = append(allow(ctx, s.door(r), obj, old), errs...)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(def.GroupKind(), obj.GetName(), errs)
	}
	if warn != nil {
		r.Warn(warn(obj, old)...)
	}
	return nil
}

// validateAs checks a stored object by the rules of the version it was sent in.
func (s *Server) validateAs(def *kind.Def, obj, old kind.Object) field.ErrorList {
	if def.Hub == nil {
		return def.Validate(obj, old)
	}
	var was kind.Object
	if old != nil {
		was = def.FromHub(old)
	}
	return def.Validate(def.FromHub(obj), was)
}

// mutate is hop 4: the built-in admission plugins that may change an object.
func (s *Server) mutate(ctx context.Context, r *Request, obj, old kind.Object) error {
	r.joined = nil // by an attempt before this one
	if len(s.Mutate) == 0 || r.admitted {
		return nil
	}
	a := s.admission(r, obj, old)
	var made metav1.ObjectMeta
	if obj != nil {
		made.UID, made.CreationTimestamp = obj.GetUID(), obj.GetCreationTimestamp()
	}
	if err := s.admitTwice(ctx, a); err != nil {
		return err
	}
	if a.Patched && obj != nil {
		if text := schema.AfterAdmission(obj, a.OwnersBefore); text != "" {
			r.Warn(text)
		}
		dedupeOwners(r, obj)
		return keepAddressed(r, obj, old, made)
	}
	return nil
}

// admitTwice asks the plugins that may change something, and again if one of them wants that because of what another one has changed.
func (s *Server) admitTwice(ctx context.Context, a *kind.Admission) error {
	a.Reinvocation = &kind.Reinvocation{}
	if err := admit(ctx, s.Mutate, a); err != nil || !a.Reinvocation.Wanted() {
		return err
	}
	a.Reinvocation.Again = true
	return admit(ctx, s.Mutate, a)
}

// validate is hop 6: those that may only refuse.
func (s *Server) validate(ctx context.Context, r *Request, obj, old kind.Object) error {
	if len(s.Check) == 0 || r.admitted {
		return nil
	}
	a := s.admission(r, obj, old)
	a.Final = true
	return admit(ctx, s.Check, a)
}

// admission is a write as plugins see it.
func (s *Server) admission(r *Request, obj, old kind.Object) *Admission {
	a := &Admission{
		Door: s.door(r), Verb: r.Verb, Def: r.Def.Storage(), Served: r.Def, Namespace: r.Namespace, Name: r.Name, User: r.User, Remote: r.Remote,
		Object: obj, Old: old, DryRun: r.Options.DryRun, Warn: r.Warn, Note: r.trail.Note, NoteBody: r.trail.NoteBody, Join: r.join,
		Kind: s.State.kind, Versions: s.State.versions,
	}
	switch {
	case obj == nil:
		a.Verb = "delete"
	case old == nil:
		if a.Verb = "create"; a.Name == "" {
			a.Name = obj.GetName()
		}
	default:
		a.Verb = "update"
	}
	a.Options = r.Options.of(a.Verb)
	if r.Sub != nil {
		a.Sub = r.Sub.Name
	}
	return a
}

func admit(ctx context.Context, plugins []Plugin, a *Admission) error {
	for _, p := range plugins {
		if err := p.Admit(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// vanishes says that an object whose deletion has begun has nothing left that holds it.
func vanishes(def *kind.Def, obj kind.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 {
		return false
	}
	if g := obj.GetDeletionGracePeriodSeconds(); g != nil && *g != 0 {
		return false
	}
	return def.Deletion.Held == nil || !def.Deletion.Held(obj)
}

// stamp is the time of a deletion.
func stamp(t metav1.Time) *metav1.Time { return &t }
