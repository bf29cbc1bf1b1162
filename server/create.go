package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/schema"
)

// create stores a new object, answers a question, or performs an action on an object.
func (s *Server) create(ctx context.Context, r *Request) (*Response, error) {
	if r.Sub != nil && r.Sub.Connect != nil {
		return nil, errStream
	}
	if err := r.work.Begin(ctx); err != nil {
		return nil, err
	}
	obj, err := s.decode(r)
	r.work.End()
	if err != nil {
		return nil, err
	}
	if err := matchNamespace(r, obj); err != nil {
		return nil, err
	}
	switch {
	case r.Sub != nil:
		return s.act(ctx, r, obj)
	case r.Def.Act != nil:
		call := &kind.Call{Namespace: r.Namespace, Name: obj.GetName(), Body: obj, DryRun: r.Options.DryRun}
		return done(r.Def.Act(ctx, s.door(r), call))
	case r.Def.Asked:
		return s.answer(ctx, r, obj)
	}
	return s.createObject(ctx, r, obj)
}

// matchNamespace gives the object the namespace of the request, and refuses another one.
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
		return badRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// createObject takes a decoded object of the request's version through the pipeline.
func (s *Server) createObject(ctx context.Context, r *Request, obj kind.Object) (*Response, error) {
	dedupeOwners(r, obj)
	if obj.GetResourceVersion() != "" && !r.Options.DryRun {
		return nil, errors.New("resourceVersion should not be set on objects to be created")
	}
	obj = toHub(r.Def, obj)
	wipe(obj)
	if err := r.work.Begin(ctx); err != nil {
		return nil, err
	}
	obj = s.own(r, r.Def.Storage().New(), obj)
	r.work.End()
	r.Clock.Done(hop.Schema)
	generated := obj.GetName() == "" && obj.GetGenerateName() != ""
	for try := 0; ; try++ {
		next := obj
		if generated {
			next = obj.DeepCopyObject().(kind.Object)
			next.SetName(generateName(obj.GetGenerateName()))
			if r.Def.Verbatim {
				next.SetName(obj.GetGenerateName())
			}
		}
		out, rev, err := s.write(ctx, r, next, nil, 0)
		if c, lost := errors.AsType[*kv.Conflict](err); lost && c.Key == r.Def.Key(next.GetNamespace(), next.GetName()) {
			if generated && try < 7 {
				continue
			}
			return nil, s.taken(r.Def, next.GetName(), c.Now)
		}
		if err != nil {
			return nil, err
		}
		s.done(r, out, rev, http.StatusCreated)
		return &Response{Code: http.StatusCreated, Object: fromHub(r.Def, out)}, nil
	}
}

// taken is the refusal of a new object whose name another one has, which may be one that cannot be decoded.
func (s *Server) taken(def *kind.Def, name string, now kv.Pair) error {
	if _, err := s.State.entry(def.Storage(), now); now.Value != nil && err != nil {
		return unreadableExists(def, name, err)
	}
	return apierrors.NewAlreadyExists(def.Resource(), name)
}

// birth sets what only the server decides about a new object.
func birth(obj kind.Object) {
	obj.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	obj.SetUID(types.UID(uuid.NewString()))
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
}

// wipe takes away what only the server may say.
func wipe(obj kind.Object) {
	birth(obj)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
}

// dedupeOwners drops owner references that are there twice, and says so.
func dedupeOwners(r *Request, obj kind.Object) {
	refs := obj.GetOwnerReferences()
	var kept []metav1.OwnerReference
	var twice []string
	for _, ref := range refs {
		if slices.ContainsFunc(kept, func(k metav1.OwnerReference) bool { return reflect.DeepEqual(k, ref) }) {
			twice = append(twice, string(ref.UID))
			continue
		}
		kept = append(kept, ref)
	}
	if twice == nil {
		return
	}
	obj.SetOwnerReferences(kept)
	r.Warn(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; " +
		"please fix your requests; duplicate UID(s) observed: " + strings.Join(twice, ", "))
}

// own records who owns the fields of obj after this request.
func (s *Server) own(r *Request, live, obj kind.Object) kind.Object {
	if s.Owner == nil {
		return obj
	}
	out, err := s.manager(r).Update(live, obj, schema.ManagerName(r.Options.Manager, r.Agent))
	if err != nil {
		s.Log.Warn("cannot record the owners of fields", "kind", r.Def.Kind, "name", obj.GetName(), "err", err)
	}
	if o, ok := out.(kind.Object); ok {
		return o
	}
	return obj
}

// manager finds the keeper of field owners for a request.
func (s *Server) manager(r *Request) *schema.Manager {
	t := schema.Target{Kind: r.Def.GroupVersionKind, Hub: r.Def.Storage().GroupVersion()}
	switch {
	case r.Sub != nil:
		t.Subresource, t.Reset = r.Sub.Name, r.Sub.Reset
		if r.Sub.Do != nil && r.Sub.Body != nil { // an action's fields are those of its body
			t.Kind, t.Hub = r.Sub.Body.GroupVersionKind, r.Sub.Body.GroupVersion()
		}
	default:
		t.Reset = r.Def.Storage().Reset
	}
	if r.Def.Load != nil {
		return s.customManager(r, t)
	}
	return s.Owner.For(t)
}

// generateName completes a prefix with five random characters that spell no words.
func generateName(base string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	const maxBase = 63 - 5
	if len(base) > maxBase {
		base = base[:maxBase]
	}
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return base + string(b)
}

// answer computes a review.
func (s *Server) answer(ctx context.Context, r *Request, obj kind.Object) (*Response, error) {
	wipe(obj)
	if errs := r.Def.Validate(obj, nil); len(errs) > 0 {
		return nil, apierrors.NewInvalid(runtimeschema.GroupKind{Group: r.Def.Group}, "", errs)
	}
	obj = s.own(r, r.Def.New(), obj)
	if err := r.Def.Answer(ctx, s.door(r), obj); err != nil {
		return nil, err
	}
	return &Response{Code: http.StatusCreated, Object: obj}, nil
}

// act performs an action on an object.
func (s *Server) act(ctx context.Context, r *Request, body kind.Object) (*Response, error) {
	parent, err := s.State.Get(ctx, r.Def.Storage().Resource(), r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if err := s.mutate(ctx, r, body, nil); err != nil {
		return nil, err
	}
	if err := s.validate(ctx, r, body, nil); err != nil {
		return nil, err
	}
	if r.Sub.Body != nil && r.Sub.Body.Echo {
		body = s.own(r, r.Sub.Body.New(), body)
	}
	call := &kind.Call{Namespace: r.Namespace, Name: r.Name, Body: body, DryRun: r.Options.DryRun}
	return done(r.Sub.Do(ctx, s.door(r), call, parent))
}

// done is the answer of an action: what it returns, or success.
func done(out kind.Object, err error) (*Response, error) {
	if err != nil {
		return nil, err
	}
	if out == nil {
		return &Response{Code: http.StatusCreated, Object: success(http.StatusCreated)}, nil
	}
	return &Response{Code: http.StatusCreated, Object: out}, nil
}

func success(code int32) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: code}
}
