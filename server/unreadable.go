package server

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/authz"
)

// unreadableExists returns the error for a new object whose name is taken by an object that cannot be decoded.
func unreadableExists(def *kind.Def, name string, reason error) error {
	err := apierrors.NewAlreadyExists(def.Resource(), name)
	err.ErrStatus.Message += "; what is stored under its name cannot be decoded: " + reason.Error()
	return err
}

// unsafeVerb is the verb that a user needs besides delete to delete an object that cannot be decoded.
const unsafeVerb = "unsafe-delete-ignore-read-errors"

// deleteUnreadable deletes an object that cannot be decoded. Nothing is known of its fields, so there are no
// preconditions, no finalizers, no admission and no claims to give back.
func (s *Server) deleteUnreadable(ctx context.Context, r *Request) error {
	a := authz.Attributes{
		User: r.User, Verb: unsafeVerb, Namespace: r.Namespace, IsResource: true,
		Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Name: r.Name,
	}
	r.Audit.Annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
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
		return apistatus.FromStore(err)
	case !found:
		return apistatus.NotFound(r.Def, r.Name)
	}
	if _, err := s.State.Entry(def, p); err == nil {
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
