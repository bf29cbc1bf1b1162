package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/authz"
	"proa.dev/watch"
)

// lookUp finds an object in its cache. It is an error if there is a stored object that cannot be decoded: that is not an absence.
func lookUp(cache *watch.Cache, key string) (*watch.Entry, bool, error) {
	if e, found := cache.Get(key); found {
		return e, true, nil
	}
	return nil, false, storeError(cache.Unreadable(key))
}

// warnUnreadable tells the client of a list or a watch which objects it does not see because they cannot be decoded. A client that
// selects by other fields than the name may not have to do with them, and is told only that there are some.
func warnUnreadable(r *Request, keys []string) {
	if len(keys) == 0 {
		return
	}
	names := ""
	if f := r.Options.List.Fields; f == nil || f.Empty() {
		names = ": " + strings.Join(keys[:min(len(keys), maxNamedKeys)], ", ")
		if more := len(keys) - maxNamedKeys; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
	}
	r.Warn(fmt.Sprintf("%d stored objects cannot be decoded and are left out%s", len(keys), names))
}

// maxNamedKeys bounds how many keys a warning or an error names.
const maxNamedKeys = 5

// unreadableError is the error of a request for several objects that could not be done for those that cannot be decoded.
func unreadableError(cache *watch.Cache, keys []string) error {
	var errs []error
	for _, k := range keys[:min(len(keys), maxNamedKeys)] {
		if err := cache.Unreadable(k); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInternalError(fmt.Errorf("unable to transform or decode %d objects: %w", len(keys), errors.Join(errs...)))
}

// unreadableExists is the refusal of an object whose name is taken by one that cannot be decoded.
func unreadableExists(def *kind.Def, name string, reason error) error {
	err := apierrors.NewAlreadyExists(def.Resource(), name)
	err.ErrStatus.Message += "; what is stored under its name cannot be decoded: " + reason.Error()
	return err
}

// ignoresReadErrors says that a deletion is for an object that cannot be decoded, and only for such a one.
func ignoresReadErrors(o *metav1.DeleteOptions) bool {
	return o != nil && o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// unsafeVerb is what a user must be allowed to do to delete an object that cannot be decoded.
const unsafeVerb = "unsafe-delete-ignore-read-errors"

// removeUnreadable deletes an object that cannot be decoded. Nobody can say what it holds, so there are no preconditions, no finalizers,
// no admission and no claims to give back.
func (s *Server) removeUnreadable(ctx context.Context, r *Request) error {
	a := authz.Attributes{
		User: r.User, Verb: unsafeVerb, Namespace: r.Namespace, IsResource: true,
		Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Name: r.Name,
	}
	r.trail.Note("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	decision, reason, err := s.Authz.Authorize(ctx, a)
	if err != nil {
		return apierrors.NewForbidden(r.Def.Resource(), r.Name, fmt.Errorf("error while checking permission for %q, %w", unsafeVerb, err))
	}
	if decision != authz.Allow {
		if reason != "" {
			reason = ": " + reason
		}
		return apierrors.NewForbidden(r.Def.Resource(), r.Name, fmt.Errorf("not permitted to do %q%s", unsafeVerb, reason))
	}
	def := r.Def.Storage()
	p, found, err := s.State.Store.Get(ctx, def.Key(r.Namespace, r.Name))
	switch {
	case err != nil:
		return storeError(err)
	case !found:
		return notFound(r.Def, r.Name)
	}
	if _, err := s.State.entry(def, p); err == nil {
		return fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage", p.Key)
	}
	if r.Options.DryRun {
		return nil
	}
	_, err = s.State.Store.Commit(ctx, kv.Write{Key: p.Key, Rev: p.Rev, TTL: def.TTL})
	if err == nil {
		s.Log.WarnContext(ctx, "deleted a stored object that could not be decoded", "key", p.Key, "rev", p.Rev, "user", r.User.GetName())
	}
	return conflictError(def, r.Name, passConflict(err))
}

// refuseUnsafeCollection refuses the deletion of a collection with the option that is for one object.
func refuseUnsafeCollection(o *metav1.DeleteOptions) error {
	if !ignoresReadErrors(o) {
		return nil
	}
	return apierrors.NewInvalid(runtimeschema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", field.ErrorList{
		field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option"),
	})
}

// Unreadable is the number of stored objects that cannot be decoded, of each resource that has some.
func (s *State) Unreadable() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, def := range s.defs.Load().stored {
		if c := s.caches[def.Stored]; c != nil {
			if n := len(c.UnreadableKeys(c.Prefix)); n > 0 {
				out[def.Resource().String()] = n
			}
		}
	}
	return out
}

// RereadUnreadable reads resources again that have objects which could not be decrypted, because there are other keys now.
func (s *State) RereadUnreadable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.caches {
		c.Reread()
	}
}
