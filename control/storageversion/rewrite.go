package storageversion

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// run writes the objects of a resource again, and stores the result in the migration. An error makes the engine retry.
func (s *migrator) run(ctx context.Context, c *control.Cluster, m *migration, on schema.GroupResource) error {
	until, err := strconv.ParseInt(m.Status.ResourceVersion, 10, 64)
	if err != nil {
		setFailed(m, unhandledMessage("error comparing resource versions between GC and SVM resource: "+err.Error()), time.Now())
		return writeStatus(ctx, c, m)
	}
	view, err := c.Open(ctx, on)
	if err != nil {
		return err
	}
	if err := view.Reach(ctx, 0); err != nil {
		return err
	}
	var old []kind.Object
	var p progress
	for o := range view.List("") {
		p.all++
		// An object that was written after the migration began is stored in the current version.
		if rev, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64); err != nil || rev <= until {
			old = append(old, o)
		}
	}
	p.left = len(old)
	for _, o := range old {
		_, err := c.Update(ctx, on, o.DeepCopyObject().(kind.Object), "")
		// Another client has written the object, which stores it in the current version, or deleted it.
		if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			p.left--
			continue
		}
		return handleError(ctx, c, m, p, err)
	}
	now := time.Now()
	setRunning(m, p, nil, now)
	if unreadable := view.Unreadable(""); len(unreadable) > 0 {
		// The migration must not succeed: an administrator could then remove the old encryption keys.
		setFailed(m, fmt.Sprintf("%d stored objects cannot be decoded and were not migrated, the first is %s", len(unreadable), unreadable[0]), now)
		return writeStatus(ctx, c, m)
	}
	setSucceeded(m, now)
	return writeStatus(ctx, c, m)
}

// handleError stores an error in a migration: a transient one is retried, another one ends the migration.
func handleError(ctx context.Context, c *control.Cluster, m *migration, p progress, failure error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	if isTransient(failure) {
		if setRunning(m, p, failure, now) {
			if err := writeStatus(ctx, c, m); err != nil {
				return errors.Join(failure, err)
			}
		}
		return failure
	}
	setRunning(m, p, nil, now)
	setFailed(m, fmt.Sprintf("%d/%d not yet migrated. %s", p.left, p.all, unhandledMessage(failure.Error())), now)
	return writeStatus(ctx, c, m)
}

// isTransient reports whether an error is transient. An error that is no response of the API server always is.
func isTransient(err error) bool {
	if _, answer := errors.AsType[*apierrors.StatusError](err); !answer {
		return true
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}
