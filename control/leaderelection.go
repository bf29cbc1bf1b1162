package control

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
)

// Leadership is leader election: it lets one of several processes work, by a Lease in kube-system. The leader renews the
// Lease. When it stops renewing, another process takes over after the duration that the Lease itself states; when it
// releases the Lease, another takes over at once.
//
// Clocks of different processes are never compared: a follower counts from when it saw the Lease change, a leader from
// before it sent its last successful renewal, and stops after two thirds of the duration, even while a request hangs. So it
// keeps the Lease while a request takes less than a third of the duration. No wait depends on an event alone: a follower whose
// view shows no change reads the Lease from the server, and retries while the store does not answer.
type Leadership struct {
	Lease    string
	Identity string
	// Term is the lease duration when this process holds the Lease, in whole seconds; zero for two seconds.
	Term time.Duration

	mu sync.Mutex // guards what follows
	// leads is true while this process holds the Lease and works.
	leads bool
	// known is the Lease as last observed.
	known observation
	// last is the last leadership that is known, of this process or another one.
	last leadership
	// unproven is how many leaderships have begun since one lasted a whole Term.
	unproven int
}

// observation is an observed state of the Lease; lease is nil when there was none.
type observation struct {
	lease *coordinationv1.Lease
	rev   int64
	// at is when this spec was first observed; zero before the first observation.
	at time.Time
}

// leadership is the time for which one process holds the Lease without interruption.
type leadership struct {
	holder   string
	acquired time.Time // from the Lease: it identifies the leadership, and is not compared with a clock
	began    time.Time // when this process first knew of it
}

// heldLease is the Lease while this process holds it, and when the last successful request that wrote it was sent.
type heldLease struct {
	lease *coordinationv1.Lease
	since time.Time
}

const (
	// readTimeout bounds one request about the Lease.
	readTimeout = time.Second
	// maxUnproven is how many leaderships in a row may begin, none of which has lasted a whole Term yet, before Check fails.
	maxUnproven = 3
)

func (l *Leadership) term() time.Duration {
	if l.Term == 0 {
		return 2 * time.Second
	}
	return l.Term
}

// Run calls lead whenever this process becomes the leader, with a context that ends when it no longer is. It returns when
// ctx ends.
func (l *Leadership) Run(ctx context.Context, log *slog.Logger, c client.Client, lead func(context.Context)) {
	changed := wait.NewSignal()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.follow(ctx, c, changed) })
	for ctx.Err() == nil {
		held := l.acquire(ctx, log, c, changed)
		if held == nil {
			return
		}
		log.InfoContext(ctx, "started leading", "lease", l.Lease, "identity", l.Identity)
		l.hold(ctx, log, c, held, lead)
	}
}

// IsLeading reports whether this process holds the Lease and works.
func (l *Leadership) IsLeading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

// Check returns an error when no leader is known: neither this process, nor another one whose Lease has not expired. It
// allows one more Term after the expiry, so that a change of leaders is not reported as a failure. It also returns an error
// while leaders come and go without one that stays for a Term, as when the store is too slow to renew the Lease in time.
func (l *Leadership) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unproven > maxUnproven {
		return fmt.Errorf("none of the last %d times that the Lease %s/%s was taken has it been held for %v",
			l.unproven, metav1.NamespaceSystem, l.Lease, l.term())
	}
	if l.leads {
		return nil
	}
	if l.known.at.IsZero() {
		return fmt.Errorf("the Lease %s/%s could not be read yet", metav1.NamespaceSystem, l.Lease)
	}
	if vacant := time.Since(l.known.at) - l.blockedFor(l.known.lease); vacant > l.term() {
		return fmt.Errorf("nobody has held the Lease %s/%s for %v", metav1.NamespaceSystem, l.Lease, vacant.Round(time.Second))
	}
	return nil
}

// blockedFor returns how long a Lease keeps this process from taking it after its last change: the duration in its spec, and
// nothing if it is free or this process holds it.
func (l *Leadership) blockedFor(lease *coordinationv1.Lease) time.Duration {
	switch {
	case lease == nil || holder(lease) == "" || holder(lease) == l.Identity:
		return 0
	case lease.Spec.LeaseDurationSeconds == nil:
		return l.term()
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// follow observes the Lease in a view, until ctx ends, and signals when it has changed.
func (l *Leadership) follow(ctx context.Context, c client.Client, changed wait.Signal) {
	for ctx.Err() == nil {
		v, err := c.View(ctx, gr.Leases)
		if err != nil { // acquire reads the Lease from the server meanwhile
			_ = wait.Sleep(ctx, l.term()/8)
			continue
		}
		for ev := range v.Events(ctx) {
			if ev.Gap || ev.Object.GetNamespace() != metav1.NamespaceSystem || ev.Object.GetName() != l.Lease {
				continue
			}
			seen := observation{rev: ev.Rev}
			if !ev.Deleted {
				seen = observationOf(ev.Object.(*coordinationv1.Lease))
			}
			if l.observe(seen) {
				changed.Send()
			}
		}
	}
}

// observationOf returns the sighting of a Lease that was read from the server or a view.
func observationOf(lease *coordinationv1.Lease) observation {
	rev, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		rev = 0
	}
	return observation{lease: lease, rev: rev}
}

// observe stores a sighting, unless a newer one is known. It reports whether the spec has changed: the holder has renewed
// the Lease, or another process holds it.
func (l *Leadership) observe(s observation) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.rev != 0 && s.rev < l.known.rev {
		return false
	}
	s.rev = max(s.rev, l.known.rev)
	changed = l.known.at.IsZero() || (s.lease == nil) != (l.known.lease == nil) ||
		s.lease != nil && !apiequality.Semantic.DeepEqual(s.lease.Spec, l.known.lease.Spec)
	if s.at = l.known.at; changed {
		s.at = time.Now()
	}
	l.known = s
	if changed && s.lease != nil && holder(s.lease) != "" && holder(s.lease) != l.Identity {
		l.countLeadership(s.lease)
	}
	return changed
}

// countLeadership updates unproven when a process, this one or another, has taken or renewed the Lease. The caller holds mu.
func (l *Leadership) countLeadership(lease *coordinationv1.Lease) {
	now := leadership{holder: holder(lease), began: time.Now()}
	if t := lease.Spec.AcquireTime; t != nil {
		now.acquired = t.Time
	}
	switch {
	case now.holder != l.last.holder || !now.acquired.Equal(l.last.acquired):
		l.last = now
		l.unproven++
	case now.began.Sub(l.last.began) >= l.term():
		l.unproven = 0
	}
}

// timeUntilFree returns how long this process must still wait before it may take the Lease.
func (l *Leadership) timeUntilFree() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.at.IsZero() {
		return 0
	}
	return l.blockedFor(l.known.lease) - time.Since(l.known.at)
}

// acquire waits until the Lease is free and takes it. It returns nil when ctx ends.
func (l *Leadership) acquire(ctx context.Context, log *slog.Logger, c client.Client, changed wait.Signal) *heldLease {
	failed := false
	for ctx.Err() == nil {
		if left := l.timeUntilFree(); left > 0 {
			expiry := time.NewTimer(left)
			select {
			case <-ctx.Done():
			case <-changed:
			case <-expiry.C:
			}
			expiry.Stop()
			continue
		}
		held, err := l.takeIfFree(ctx, c)
		switch {
		case held != nil:
			return held
		case err == nil: // another process has taken the Lease, or its holder has renewed it
			continue
		case !failed && ctx.Err() == nil: // logged once: an outage of the store may last long
			failed = true
			log.WarnContext(ctx, "cannot acquire the lease; retrying", "lease", l.Lease, "err", err)
		}
		_ = wait.Sleep(ctx, l.term()/8)
	}
	return nil
}

// takeIfFree takes the Lease unless its holder has renewed it: it reads the Lease from the server, because the view may lag
// behind. It returns nil without an error when another process holds the Lease.
func (l *Leadership) takeIfFree(ctx context.Context, c client.Client) (*heldLease, error) {
	lease, err := l.read(ctx, c)
	if err != nil {
		return nil, err
	}
	now := observation{}
	if lease != nil {
		now = observationOf(lease)
	}
	l.observe(now)
	if l.timeUntilFree() > 0 {
		return nil, nil
	}
	since := time.Now() // after the read, which may have taken long
	held, err := l.take(ctx, c, lease)
	switch {
	case err == nil:
		return &heldLease{held, since}, nil
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return nil, nil
	}
	return nil, err
}

// read returns the Lease as it is now; nil when there is none.
func (l *Leadership) read(ctx context.Context, c client.Client) (*coordinationv1.Lease, error) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	lease, err := leaseOf(c.Get(ctx, gr.Leases, metav1.NamespaceSystem, l.Lease, ""))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// take makes this process the holder of the Lease that was read, or creates the Lease if seen is nil.
func (l *Leadership) take(ctx context.Context, c client.Client, seen *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	now := metav1.NewMicroTime(time.Now())
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &l.Identity, LeaseDurationSeconds: new(int32(l.term() / time.Second)),
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(0)),
	}
	if seen == nil {
		name := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: l.Lease}
		return leaseOf(c.Create(ctx, gr.Leases, &coordinationv1.Lease{ObjectMeta: name, Spec: spec}))
	}
	next := seen.DeepCopy()
	if n := next.Spec.LeaseTransitions; n != nil {
		*spec.LeaseTransitions = *n
	}
	if holder(seen) != l.Identity {
		*spec.LeaseTransitions++
	}
	next.Spec = spec
	return leaseOf(c.Update(ctx, gr.Leases, next, ""))
}

func leaseOf(o any, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return o.(*coordinationv1.Lease), nil
}

// hold runs lead and renews the Lease, until renewing fails for too long or ctx ends. It returns after lead has returned. When
// ctx ends the Lease is released then.
func (l *Leadership) hold(ctx context.Context, log *slog.Logger, c client.Client, held *heldLease, lead func(context.Context)) {
	work, stop := context.WithCancel(ctx)
	l.startLeading(held.lease)
	var wg sync.WaitGroup
	wg.Go(func() { lead(work) })
	wg.Go(func() {
		<-work.Done()
		l.stopLeading()
	})
	held = l.renewUntilLost(work, stop, c, held)
	stop()
	wg.Wait()
	if ctx.Err() == nil {
		log.WarnContext(ctx, "stopped leading", "lease", l.Lease, "identity", l.Identity)
		return
	}
	l.release(context.WithoutCancel(ctx), c, held.lease)
}

// renewUntilLost renews the Lease until work ends or another process has taken it, and returns it as last written. It calls stop,
// which ends work, when renewing has failed for too long, even while a request hangs.
func (l *Leadership) renewUntilLost(work context.Context, stop func(), c client.Client, held *heldLease) *heldLease {
	untilExpiry := func() time.Duration { return l.term()*2/3 - time.Since(held.since) }
	expiry := time.AfterFunc(untilExpiry(), stop)
	defer expiry.Stop()
	interval := l.term()/4 - time.Since(held.since)
	for wait.Sleep(work, interval) == nil {
		renewed, err := l.renew(work, c, held.lease)
		switch {
		case err == nil && !expiry.Stop(): // the answer came too late
			return renewed
		case err == nil:
			held = renewed
			expiry.Reset(untilExpiry())
			l.countRenewal(held.lease)
			interval = l.term()/4 - time.Since(held.since)
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err): // another process has taken or deleted the Lease
			return held
		default:
			interval = l.term() / 16
		}
	}
	return held
}

// startLeading stores that this process leads.
func (l *Leadership) startLeading(lease *coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = true
	l.countLeadership(lease)
}

// countRenewal stores that this process, which leads, has renewed the Lease.
func (l *Leadership) countRenewal(lease *coordinationv1.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLeadership(lease)
}

// stopLeading stores that this process does not lead. No leader is known until the Lease is observed again.
func (l *Leadership) stopLeading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = false
	l.known = observation{at: time.Now(), rev: l.known.rev}
}

// renew writes the renewal time into the Lease. A conflict may come from an earlier attempt whose answer was lost: then this
// process still holds the Lease, and renew tries once more.
func (l *Leadership) renew(ctx context.Context, c client.Client, held *coordinationv1.Lease) (*heldLease, error) {
	for tries := 0; ; tries++ {
		since := time.Now()
		next := held.DeepCopy()
		next.Spec.RenewTime = new(metav1.NewMicroTime(since))
		renewed, err := leaseOf(c.Update(ctx, gr.Leases, next, ""))
		if err == nil {
			return &heldLease{renewed, since}, nil
		}
		if !apierrors.IsConflict(err) || tries > 0 {
			return nil, err
		}
		now, readErr := leaseOf(c.Get(ctx, gr.Leases, metav1.NamespaceSystem, l.Lease, ""))
		if readErr != nil {
			return nil, readErr
		}
		if holder(now) != l.Identity {
			return nil, err
		}
		held = now
	}
}

// release releases the Lease; if that fails, it expires.
func (l *Leadership) release(ctx context.Context, c client.Client, held *coordinationv1.Lease) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	next := held.DeepCopy()
	next.Spec.HolderIdentity = new("")
	next.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	_, _ = c.Update(ctx, gr.Leases, next, "")
}
