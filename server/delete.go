package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
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
	"proa.dev/watch"
)

// remove serves DELETE of one object.
func (s *Server) remove(ctx context.Context, r *Request) (*Response, error) {
	if ignoresReadErrors(r.Options.Delete) {
		if errs := metav1validation.ValidateDeleteOptions(r.Options.Delete); len(errs) > 0 {
			return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
		}
		if err := s.removeUnreadable(ctx, r); err != nil {
			return nil, err
		}
		st := success(0)
		st.Details = &metav1.StatusDetails{Name: r.Name, Group: r.Def.Group, Kind: r.Def.Plural}
		return ok(st), nil
	}
	warnDependents(r)
	obj, gone, err := s.removeObject(ctx, r)
	if err != nil {
		return nil, err
	}
	o := r.Options.Delete
	code := http.StatusOK
	if !gone && o.OrphanDependents != nil && !*o.OrphanDependents {
		code = http.StatusAccepted
	}
	if !gone || r.Def.Storage().Deletion.Returns {
		return &Response{Code: code, Object: fromHub(r.Def, obj)}, nil
	}
	st := success(0)
	st.Details = &metav1.StatusDetails{Name: obj.GetName(), Group: r.Def.Group, Kind: r.Def.Plural, UID: obj.GetUID()}
	return &Response{Code: code, Object: st}, nil
}

// warnDependents says what becomes of dependents when the client does not.
func warnDependents(r *Request) {
	text, o := r.Def.Storage().Deletion.Warning, r.Options.Delete
	if o != nil && len(metav1validation.ValidateDeleteOptions(o)) > 0 {
		return
	}
	if text != "" && (o == nil || o.PropagationPolicy == nil && o.OrphanDependents == nil) {
		r.Warn(text)
	}
}

// removeObject begins or completes the deletion of one object and says whether it is gone.
func (s *Server) removeObject(ctx context.Context, r *Request) (obj kind.Object, gone bool, err error) {
	if r.Options.Delete == nil {
		r.Options.Delete = &metav1.DeleteOptions{}
	}
	if errs := metav1validation.ValidateDeleteOptions(r.Options.Delete); len(errs) > 0 {
		return nil, false, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	def := r.Def.Storage()
	key := def.Key(r.Namespace, r.Name)
	cache := s.State.Cache(def)
	if err := cache.Fresh(ctx); err != nil {
		return nil, false, storeError(err)
	}
	if err := s.State.reconvert(ctx, def, cache, key); err != nil {
		return nil, false, err
	}
	cur, found, err := lookUp(cache, key)
	if err != nil {
		return nil, false, err
	}
	var marked kind.Object // by this request, in whichever try
	for try := 0; ; try++ {
		switch {
		case marked != nil && (!found || cur.Outline().GetUID() != marked.GetUID()):
			return marked, true, nil // who saw the mark was faster
		case !found:
			return nil, false, notFound(r.Def, r.Name)
		}
		obj, gone, err = s.removeOnce(ctx, r, def, cur, &marked)
		c, lost := errors.AsType[*kv.Conflict](err)
		if !lost || c.Key != key {
			return obj, gone, err
		}
		if try >= maxTries {
			return nil, false, modified(def, r.Name)
		}
		if found = c.Now.Rev != 0; found {
			if cur, err = s.State.entry(def, c.Now); err != nil {
				return nil, false, err
			}
		}
	}
}

// removeOnce tries to remove an object as it is now. What it stores of it before it is gone is left in marked.
func (s *Server) removeOnce(ctx context.Context, r *Request, def *kind.Def, cur *watch.Entry, marked *kind.Object) (kind.Object, bool, error) {
	options := r.Options.Delete.DeepCopy()
	old := cur.Object().DeepCopyObject().(kind.Object)
	if err := matches(def, options.Preconditions, old); err != nil {
		return nil, false, err
	}
	if def.Deletion.Check != nil {
		if err := def.Deletion.Check(old); err != nil {
			return nil, false, err
		}
	}
	if err := s.mutate(ctx, r, nil, old); err != nil {
		return nil, false, err
	}
	if err := s.validate(ctx, r, nil, old); err != nil {
		return nil, false, err
	}
	obj := old.DeepCopyObject().(kind.Object)
	if !begin(def, obj, options, time.Now()) {
		return obj, false, nil // already on its way
	}
	if !vanishes(def, obj) {
		out, rev, err := s.commit(ctx, r, def, obj, old, cur.Rev)
		if err == nil {
			s.done(r, out, rev, http.StatusOK)
		}
		return out, false, err
	}
	last, rev, err := s.mark(ctx, r, def, obj, old, cur.Rev)
	if err != nil {
		return nil, false, err
	}
	if rev != cur.Rev {
		*marked = last
	}
	out, gone, err := s.commit(ctx, r, def, nil, last, rev)
	r.Clock.Done(hop.Commit)
	if err != nil {
		return nil, false, err
	}
	s.done(r, out, gone, http.StatusOK)
	return out, true, nil
}

// mark stores, of a kind with grace, that an object is being deleted before it is gone, so that who watches is told of the
// deletion as of any other. It returns the object as it is stored then.
func (s *Server) mark(ctx context.Context, r *Request, def *kind.Def, obj, old kind.Object, rev int64) (kind.Object, int64, error) {
	if def.Deletion.Grace == nil {
		return old, rev, nil
	}
	out, at, err := s.put(ctx, r, def, obj, old, rev, &txn{})
	if err == nil && at != rev {
		s.done(r, out, at, http.StatusOK)
	}
	return out, at, err
}

// matches checks the preconditions of a deletion.
func matches(def *kind.Def, p *metav1.Preconditions, obj kind.Object) error {
	if p == nil {
		return nil
	}
	if text := def.Deletion.Failed; text != "" {
		return matchesResource(def, text, p, obj)
	}
	gr := schema.GroupResource{Group: def.Group, Resource: def.Kind}
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, obj.GetUID()))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(gr, obj.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, obj.GetResourceVersion()))
	}
	return nil
}

// matchesResource is matches for the kinds that delete in their own way.
func matchesResource(def *kind.Def, text string, p *metav1.Preconditions, obj kind.Object) error {
	if p.UID != nil && *p.UID != obj.GetUID() {
		return apierrors.NewConflict(def.Resource(), obj.GetName(), fmt.Errorf("%s: UID in precondition: %v, UID in object meta: %v", text, *p.UID, obj.GetUID()))
	}
	if rv := p.ResourceVersion; rv != nil && *rv != obj.GetResourceVersion() {
		return apierrors.NewConflict(def.Resource(), obj.GetName(), fmt.Errorf("%s: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", text, *rv, obj.GetResourceVersion()))
	}
	return nil
}

// begin marks an object as being deleted: time stamp, grace, and the finalizers that dependents ask for. It
// returns false when a deletion is pending that these options do not shorten.
func begin(def *kind.Def, obj kind.Object, options *metav1.DeleteOptions, now time.Time) bool {
	if g := options.GracePeriodSeconds; g != nil && *g < 0 {
		options.GracePeriodSeconds = new(int64(1))
	}
	graceful := def.Deletion.Grace != nil
	if graceful {
		var pending bool
		if graceful, pending = grace(def, obj, options, now); pending {
			return false
		}
	}
	if !def.Deletion.Alone {
		obj.SetFinalizers(collectors(def, obj, options))
	}
	first := obj.GetDeletionTimestamp() == nil
	if graceful {
		return true
	}
	// What holds the object decides how long it stays; grace does not.
	if first && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	if at := obj.GetDeletionTimestamp(); at == nil || at.After(now) {
		obj.SetDeletionTimestamp(stamp(metav1.NewTime(now.Truncate(time.Second))))
	}
	obj.SetDeletionGracePeriodSeconds(new(int64(0)))
	if def.Deletion.Begin != nil {
		def.Deletion.Begin(obj)
	}
	return true
}

// grace sets the time stamp of a deletion with grace. pending says that one is under way that stays as it is.
func grace(def *kind.Def, obj kind.Object, options *metav1.DeleteOptions, now time.Time) (graceful, pending bool) {
	if at := obj.GetDeletionTimestamp(); at != nil {
		left := obj.GetDeletionGracePeriodSeconds()
		if left == nil || *left == 0 {
			return false, false
		}
		if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *left {
			return false, true
		}
		wanted := *options.GracePeriodSeconds
		moved := metav1.NewTime(at.Add(time.Duration(wanted-*left) * time.Second))
		if moved.Time.Before(now) {
			moved = metav1.NewTime(now.Truncate(time.Second))
			if wanted != 0 {
				wanted = 1
			}
		}
		obj.SetDeletionTimestamp(&moved)
		obj.SetDeletionGracePeriodSeconds(&wanted)
		return true, false
	}
	seconds := def.Deletion.Grace(obj, options)
	obj.SetDeletionTimestamp(stamp(metav1.NewTime(now.Add(time.Duration(seconds) * time.Second).Truncate(time.Second))))
	obj.SetDeletionGracePeriodSeconds(&seconds)
	if obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	return true, false
}

// collectors are the finalizers of an object that is deleted with these options: one of the two that ask the
// garbage collector to treat dependents first is added or removed.
func collectors(def *kind.Def, obj kind.Object, options *metav1.DeleteOptions) []string {
	policy := def.Deletion.Propagation
	for _, f := range obj.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents:
			policy = metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			policy = metav1.DeletePropagationForeground
		}
	}
	if options.PropagationPolicy != nil {
		policy = *options.PropagationPolicy
	}
	if o := options.OrphanDependents; o != nil {
		if policy = metav1.DeletePropagationBackground; *o {
			policy = metav1.DeletePropagationOrphan
		}
	}
	out := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch policy {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}

// removeAll serves DELETE of a collection: each selected object is deleted on its own.
func (s *Server) removeAll(ctx context.Context, r *Request) (*Response, error) {
	if r.Options.Delete == nil {
		r.Options.Delete = &metav1.DeleteOptions{}
	}
	if err := refuseUnsafeCollection(r.Options.Delete); err != nil {
		return nil, err
	}
	warnDependents(r)
	page, err := s.page(ctx, r)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(page.Items))
	s.removeEach(ctx, r, page.Items, errs)
	deleted := &List{Meta: page.Meta}
	for i, e := range page.Items {
		switch {
		case errs[i] == nil:
			deleted.Items = append(deleted.Items, e) // as it was
		case !apierrors.IsNotFound(errs[i]):
			return nil, errs[i]
		}
	}
	if def := r.Def.Storage(); def.Computed == nil {
		cache := s.State.Cache(def)
		if err := unreadableError(cache, cache.UnreadableKeys(scope(def, r.Namespace))); err != nil {
			return nil, err // everything else is deleted
		}
	}
	return &Response{Code: http.StatusOK, List: deleted}, nil
}

// removals is how many objects of a collection are removed at a time: the store writes several to disk at once.
const removals = 16

// removeEach removes the objects of a collection. After an error it begins with no further one.
func (s *Server) removeEach(ctx context.Context, r *Request, items []*watch.Entry, errs []error) {
	workers := removals
	if r.trail != nil { // it is not for several at once
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
				if warnings[i], errs[i] = s.removeOne(ctx, *r, items[i].Object()); errs[i] != nil && !apierrors.IsNotFound(errs[i]) {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	for _, texts := range warnings {
		r.Warn(texts...)
	}
}

// removeOne removes one object of a collection, and returns what admission warns of. A panic is an error here: nobody above this goroutine
// would catch it.
func (s *Server) removeOne(ctx context.Context, r Request, obj kind.Object) (warnings []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = apierrors.NewInternalError(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	r.Verb, r.Namespace, r.Name = "delete", obj.GetNamespace(), obj.GetName()
	r.Options.Delete = r.Options.Delete.DeepCopy()
	r.warnings = nil // those of the others are theirs
	_, _, err = s.removeObject(ctx, &r)
	return r.warnings, err
}

func revision(obj kind.Object) (int64, error) {
	return strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
}
