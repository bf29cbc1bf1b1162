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

// run writes the objects of a resource again, and says what came of it. An error asks for another try.
func (s *migrator) run(ctx context.Context, c *control.Cluster, m *migration, on schema.GroupResource) error {
	until, err := strconv.ParseInt(m.Status.ResourceVersion, 10, 64)
	if err != nil {
		fail(m, unhandled("error comparing resource versions between GC and SVM resource: "+err.Error()), time.Now())
		return store(ctx, c, m)
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
		// What was written after the migration began is stored the new way.
		if rev, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64); err != nil || rev <= until {
			old = append(old, o)
		}
	}
	p.left = len(old)
	for _, o := range old {
		_, err := c.Update(ctx, on, o.DeepCopyObject().(kind.Object), "")
		// Who was faster has written it the new way, or deleted it.
		if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			p.left--
			continue
		}
		return giveUp(ctx, c, m, p, err)
	}
	now := time.Now()
	running(m, p, nil, now)
	if lost := view.Unreadable(""); len(lost) > 0 {
		// Who believes that everything is written anew may throw the old keys away.
		fail(m, fmt.Sprintf("%d stored objects cannot be decoded and were not migrated, the first is %s", len(lost), lost[0]), now)
		return store(ctx, c, m)
	}
	succeed(m, now)
	return store(ctx, c, m)
}

// giveUp tells what went wrong: a passing trouble holds the migration up, another one ends it.
func giveUp(ctx context.Context, c *control.Cluster, m *migration, p progress, trouble error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	if passing(trouble) {
		if running(m, p, trouble, now) {
			if err := store(ctx, c, m); err != nil {
				return errors.Join(trouble, err)
			}
		}
		return trouble
	}
	running(m, p, nil, now)
	fail(m, fmt.Sprintf("%d/%d not yet migrated. %s", p.left, p.all, unhandled(trouble.Error())), now)
	return store(ctx, c, m)
}

// passing says that another try may go better. What is no answer of the API server is its own trouble.
func passing(err error) bool {
	if _, answer := errors.AsType[*apierrors.StatusError](err); !answer {
		return true
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}
