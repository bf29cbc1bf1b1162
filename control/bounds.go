package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The bounds of one reconciliation. A reconciliation that exceeds one ends; what it has written stays, and a later one goes on from there.
const (
	// maxReconcile is how long a reconciliation may take, after which its context ends.
	maxReconcile = 2 * time.Minute
	// endsWithin is how soon after that it must return, or it is reported as one that does not end.
	endsWithin = 30 * time.Second
	// maxWrites is how many writes a reconciliation may make. The key then waits behind the others, which is no failure.
	maxWrites = 10_000
	// progress is how many writes show that a reconciliation which took too long gets on with its work all the same.
	progress = 100
	// slowAfter is how long a reconciliation may hold its worker, which is then replaced if the controller has several; maxReplaced is how
	// many reconciliations of a controller may have been replaced at once.
	slowAfter   = 10 * time.Second
	maxReplaced = 16
	// A key whose reconciliation has taken too long or panicked setAsideAfter times in a row, for setAsideSince or longer, is set
	// aside: whatever changes, it is not reconciled for setAsideFor, or for retryChanged if its own object is another one, has a new
	// spec or is gone.
	setAsideAfter = 3
	setAsideSince = time.Minute
	setAsideFor   = 10 * time.Minute
	retryChanged  = time.Minute
)

// ReasonSetAside is the reason of the Event about an object whose key is set aside.
const ReasonSetAside = "SetAside"

var (
	errTooSlow       = fmt.Errorf("the reconciliation did not end within %s", maxReconcile)
	errTooManyWrites = fmt.Errorf("the reconciliation has made %d writes, and continues after other keys", maxWrites)
	errPanic         = errors.New("panic")
	errNotEnding     = fmt.Errorf("the reconciliation should have ended after %s, and has not", maxReconcile)
)

// bounded is one reconciliation with its bounds.
type bounded struct {
	writes     atomic.Int64
	inRequests atomic.Int64 // how long its requests took together, in nanoseconds
	cancel     context.CancelCauseFunc

	mu              sync.Mutex // guards what follows
	ended, replaced bool       // replaced: another worker has taken the place of the one that reconciles
}

type boundedKey struct{}

// withBounds returns a context that ends when the reconciliation made with it exceeds its bounds.
func withBounds(ctx context.Context) (context.Context, *bounded) {
	b := &bounded{}
	ctx, b.cancel = context.WithCancelCause(ctx)
	return context.WithValue(ctx, boundedKey{}, b), b
}

// beginWrite counts a write of the reconciliation that a context belongs to until end is called. It returns an error if it is one too
// many.
func beginWrite(ctx context.Context) (end func(), err error) {
	if b, _ := ctx.Value(boundedKey{}).(*bounded); b != nil && b.writes.Add(1) > maxWrites {
		b.cancel(errTooManyWrites)
		return nil, errTooManyWrites
	}
	return beginRequest(ctx), nil
}

// beginRequest counts the time until end is called as that of a request of the reconciliation that a context belongs to.
func beginRequest(ctx context.Context) (end func()) {
	b, _ := ctx.Value(boundedKey{}).(*bounded)
	if b == nil {
		return func() {}
	}
	begin := time.Now()
	return func() { b.inRequests.Add(int64(time.Since(begin))) }
}

// exceeds reports whether the error of a reconciliation is that it was too slow without getting on, or has panicked. One that has waited
// for answers most of the time is not too slow itself: the store is, or a webhook.
func (b *bounded) exceeds(err error) bool {
	return errors.Is(err, errPanic) || errors.Is(err, errTooSlow) && b.writes.Load() < progress &&
		time.Duration(b.inRequests.Load()) < maxReconcile/2
}

// reconcile calls Reconcile for a key within its bounds. replaced reports that another worker has taken the place of this one.
func (w *worker) reconcile(ctx context.Context, k Key) (again time.Duration, err error, exceeded, replaced bool) {
	bounds, b := withBounds(ctx)
	defer b.cancel(nil)
	slow := time.AfterFunc(slowAfter, func() { w.replace(ctx, b) })
	defer slow.Stop()
	late := time.AfterFunc(maxReconcile, func() { b.cancel(errTooSlow) })
	defer late.Stop()
	again, err = w.attempt(bounds, k)
	replaced = w.end(b)
	if ctx.Err() != nil {
		return again, err, false, replaced
	}
	switch cause := context.Cause(bounds); {
	case errors.Is(cause, errTooManyWrites): // what the reconciliation says about it may be thousands of errors
		return time.Millisecond, nil, false, replaced
	case errors.Is(cause, errTooSlow) && err != nil:
		err = fmt.Errorf("%w, after %d writes", errTooSlow, b.writes.Load())
	}
	return again, err, b.exceeds(err), replaced
}

// replace starts another worker in place of one whose reconciliation is slow, unless the controller has one worker: such a controller
// relies on its keys being reconciled one after the other.
func (w *worker) replace(ctx context.Context, b *bounded) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || w.Workers < 2 {
		return
	}
	if w.replaced.Add(1) > maxReplaced {
		w.replaced.Add(-1)
		return
	}
	b.replaced = true
	w.running.Go(func() { w.run(ctx) })
}

// end ends a reconciliation, and reports whether its worker was replaced.
func (w *worker) end(b *bounded) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.replaced {
		w.replaced.Add(-1)
	}
	return b.replaced
}

// reportSetAside records an Event about the object of a key that was set aside.
func (w *worker) reportSetAside(ctx context.Context, k Key, err error) {
	w.log.WarnContext(ctx, "set aside", "controller", w.Name, "namespace", k.Namespace, "name", k.Name, "for", setAsideFor,
		"err", shortError(err))
	v := w.cluster.View(w.For)
	if v == nil {
		return
	}
	if o, found := v.Get(k.Namespace, k.Name); found {
		w.cluster.Event(o, corev1.EventTypeWarning, ReasonSetAside, "%s has set this object aside, since %d attempts in a row have failed: %s. "+
			"It tries again every %s, and within %s of a change of the spec. Ask for less in the spec, or delete the object", w.Name,
			setAsideAfter, shortError(err), setAsideFor, retryChanged)
	}
}
