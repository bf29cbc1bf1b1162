package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/collection"
	"proa.dev/server/deletion"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// delete serves DELETE of one object.
func (s *Server) delete(ctx context.Context, r *Request) (*Response, error) {
	if deletion.IgnoresReadErrors(r.Options.Delete) {
		if errs := metav1validation.ValidateDeleteOptions(r.Options.Delete); len(errs) > 0 {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
		}
		if err := s.deleteUnreadable(ctx, r); err != nil {
			return nil, err
		}
		st := successStatus(0)
		st.Details = &metav1.StatusDetails{Name: r.Name, Group: r.Def.Group, Kind: r.Def.Plural}
		return ok(st), nil
	}
	deletion.WarnOfDependents(r.Def, r.Options.Delete, r.Warn)
	obj, deleted, err := s.deleteObject(ctx, r)
	if err != nil {
		return nil, err
	}
	o := r.Options.Delete
	code := apistatus.CodeOK
	if !deleted && o.OrphanDependents != nil && !*o.OrphanDependents {
		code = apistatus.CodeAccepted
	}
	if !deleted || r.Def.Storage().Deletion.ReturnsObject {
		return &Response{Code: code, Object: state.FromHub(r.Def, obj)}, nil
	}
	st := successStatus(0)
	st.Details = &metav1.StatusDetails{Name: obj.GetName(), Group: r.Def.Group, Kind: r.Def.Plural, UID: obj.GetUID()}
	return &Response{Code: code, Object: st}, nil
}

// deleteObject begins or completes the deletion of one object and reports whether it is deleted. When another writer
// was faster, it starts again with the newer object.
func (s *Server) deleteObject(ctx context.Context, r *Request) (obj kind.Object, deleted bool, err error) {
	if r.Options.Delete == nil {
		r.Options.Delete = &metav1.DeleteOptions{}
	}
	if errs := metav1validation.ValidateDeleteOptions(r.Options.Delete); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	def := r.Def.Storage()
	key := def.Key(r.Namespace, r.Name)
	cur, found, err := s.State.Newest(ctx, def, key)
	if err != nil {
		return nil, false, err
	}
	var marked kind.Object // the object with the deletion timestamp that this request has stored, in any of its attempts
	for try := 0; ; try++ {
		switch {
		case marked != nil && (!found || cur.Outline().GetUID() != marked.GetUID()):
			return marked, true, nil // somebody who watched has finished the deletion
		case !found:
			return nil, false, apistatus.NotFound(r.Def, r.Name)
		}
		obj, deleted, err = s.tryDelete(ctx, r, def, cur, &marked)
		c, isConflict := errors.AsType[*kv.Conflict](err)
		if !isConflict || c.Key != key {
			return obj, deleted, err
		}
		if try >= maxTries {
			return nil, false, apistatus.Modified(def, r.Name)
		}
		if found = c.Now.Rev != 0; found {
			if cur, err = s.State.Entry(def, c.Now); err != nil {
				return nil, false, err
			}
		}
	}
}

// tryDelete begins or completes the deletion of one state of an object. If it stores a deletion timestamp before it
// deletes the object, it leaves what it has stored in marked.
func (s *Server) tryDelete(ctx context.Context, r *Request, def *kind.Def, cur *watch.Entry, marked *kind.Object) (kind.Object, bool,
	error) {
	options := r.Options.Delete.DeepCopy()
	old := cur.Object().DeepCopyObject().(kind.Object)
	r.Clock.Record.UID = old.GetUID()
	if err := deletion.CheckPreconditions(def, options.Preconditions, old); err != nil {
		return nil, false, err
	}
	if def.Deletion.Check != nil {
		if err := def.Deletion.Check(old); err != nil {
			return nil, false, err
		}
	}
	r.Clock.Done(hop.Schema)
	if err := s.mutate(ctx, r, nil, old); err != nil {
		r.Clock.Refuse(hop.Mutate)
		return nil, false, err
	}
	r.Clock.Done(hop.Mutate)
	if err := s.validate(ctx, r, nil, old); err != nil {
		r.Clock.Refuse(hop.Validate)
		return nil, false, err
	}
	r.Clock.Done(hop.Validate)
	obj := old.DeepCopyObject().(kind.Object)
	if !deletion.Begin(def, obj, options, time.Now()) {
		return obj, false, nil // its deletion has begun already, and these options do not shorten it
	}
	if !deletion.IsFinished(def, obj) {
		out, rev, err := s.commit(ctx, r, obj, old, cur.Rev)
		r.Clock.Done(hop.Commit)
		if err == nil {
			s.recordWrite(r, out, rev, apistatus.CodeOK)
		}
		return out, false, err
	}
	last, rev, err := s.markDeleted(ctx, r, obj, old, cur.Rev)
	if err != nil {
		return nil, false, err
	}
	if rev != cur.Rev {
		*marked = last
	}
	out, at, err := s.commit(ctx, r, nil, last, rev)
	r.Clock.Done(hop.Commit)
	if err != nil {
		return nil, false, err
	}
	s.recordWrite(r, out, at, apistatus.CodeOK)
	return out, true, nil
}

// markDeleted stores the deletion timestamp of an object whose kind has a grace period before the object is deleted, so
// that watchers see the same events as of any other deletion. It returns the object as it is stored then.
func (s *Server) markDeleted(ctx context.Context, r *Request, obj, old kind.Object, rev int64) (kind.Object, int64, error) {
	if r.Def.Storage().Deletion.Grace == nil {
		return old, rev, nil
	}
	out, at, err := s.store(ctx, r, obj, old, rev, &transaction{})
	r.Clock.Done(hop.Commit)
	if err == nil && at != rev {
		s.recordWrite(r, out, at, apistatus.CodeOK)
	}
	return out, at, err
}

// maxDeletedBytes is how large the objects of a collection may be, as they are stored, that its deletion answers with. Of more the answer
// is that they are deleted, and each is let go of as soon as it is: together they may be larger than the memory.
const maxDeletedBytes = 16 << 20

// deleteCollection serves DELETE of a collection: each selected object is deleted on its own.
func (s *Server) deleteCollection(ctx context.Context, r *Request) (*Response, error) {
	if r.Options.Delete == nil {
		r.Options.Delete = &metav1.DeleteOptions{}
	}
	if err := deletion.RefuseUnsafeCollection(r.Options.Delete); err != nil {
		return nil, err
	}
	deletion.WarnOfDependents(r.Def, r.Options.Delete, r.Warn)
	page, err := s.page(ctx, r)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range page.Items {
		size += e.Size()
	}
	large := size > maxDeletedBytes && page.Meta.Continue == ""
	errs := make([]error, len(page.Items))
	s.deleteEach(ctx, r, page.Items, errs, large)
	deleted := &collection.List{Meta: page.Meta}
	for i, e := range page.Items {
		switch {
		case errs[i] == nil:
			deleted.Items = append(deleted.Items, e) // as it was before
		case !apierrors.IsNotFound(errs[i]):
			return nil, errs[i]
		}
	}
	if def := r.Def.Storage(); def.Computed == nil {
		cache := s.State.Cache(def)
		if err := state.UnreadableError(cache, cache.UnreadableKeys(state.KeyPrefix(def, r.Namespace))); err != nil {
			return nil, err // all others are deleted
		}
	}
	if large {
		st := successStatus(0)
		st.Details = &metav1.StatusDetails{Group: r.Def.Group, Kind: r.Def.Plural}
		return ok(st), nil
	}
	return &Response{Code: apistatus.CodeOK, List: deleted}, nil
}

// parallelDeletions is how many objects of a collection are deleted at a time, so that they share the writes to the
// disk.
const parallelDeletions = 16

// deleteEach deletes objects of a collection in parallel and sets errs. After an error it begins no further deletion. With release it
// drops each item that is deleted.
func (s *Server) deleteEach(ctx context.Context, r *Request, items []*watch.Entry, errs []error, release bool) {
	workers := parallelDeletions
	if r.Audit != nil { // an audit record is not safe for concurrent use
		workers = 1
	}
	var next atomic.Int64
	var failed atomic.Bool
	var wg sync.WaitGroup
	warnings := make([][]string, len(items))
	for range min(workers, len(items)) {
		wg.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if warnings[i], errs[i] = s.deleteListed(ctx, *r, items[i].Object()); errs[i] != nil && !apierrors.IsNotFound(errs[i]) {
					failed.Store(true)
				}
				if release {
					items[i] = nil
				}
			}
		})
	}
	wg.Wait()
	for _, texts := range warnings {
		r.Warn(texts...)
	}
}

// deleteListed deletes one object of a collection and returns the warnings of admission. A panic becomes an error,
// because nothing above this goroutine recovers it.
func (s *Server) deleteListed(ctx context.Context, r Request, obj kind.Object) (warnings []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = apierrors.NewInternalError(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	r.Verb, r.Namespace, r.Name = "delete", obj.GetNamespace(), obj.GetName()
	r.Options.Delete = r.Options.Delete.DeepCopy()
	r.Warnings = nil
	if r.Clock.IsRunning() {
		r.Clock.Restart(time.Now())
	}
	_, _, err = s.deleteObject(ctx, &r)
	return r.Warnings, err
}

// revision returns the revision of the store at which an object was written.
func revision(obj kind.Object) (int64, error) {
	return strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
}
