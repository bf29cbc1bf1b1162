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
// before it sent its last renewal, and stops well before the Lease expires. No wait depends on an event alone: a follower
// whose view shows no change reads the Lease from the server, and retries while the store does not answer.
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
}

// observation is an observed state of the Lease; lease is nil when there was none.
type observation struct {
	lease *coordinationv1.Lease
	rev   int64
	// at is when this spec was first observed; zero before the first observation.
	at time.Time
}

// heldLease is the Lease while this process holds it, and when the last request that wrote it was sent.
type heldLease struct {
	lease *coordinationv1.Lease
	since time.Time
}

// readTimeout bounds one request about the Lease.
const readTimeout = time.Second

func (l *Leadership) term() time.Duration {
	if l.Term == 0 {
		return 2 * time.Second
	}
	return l.Term
}

// Run calls lead whenever this process becomes the leader, with a context that ends when it no longer is. It returns when
// ctx ends.
func (l *Leadership) Run(ctx context.Context, log *slog.Logger, c client.Client, lead func(context.Context)) {
	changes := make(chan observation, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.follow(ctx, c, changes) })
	for ctx.Err() == nil {
		held := l.acquire(ctx, log, c, changes)
		if held == nil {
			return
		}
		log.InfoContext(ctx, "started leading", "lease", l.Lease, "identity", l.Identity)
		l.hold(ctx, log, c, held, lead)
	}
}

// IsLeading reports whether this process holds the Lease.
func (l *Leadership) IsLeading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads
}

// Check returns an error when no leader is known: neither this process, nor another one whose Lease has not expired. It
// allows one more Term after the expiry, so that a change of leaders is not reported as a failure.
func (l *Leadership) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// follow sends the Lease to changes whenever the view shows that it has changed. An unread older state is replaced.
func (l *Leadership) follow(ctx context.Context, c client.Client, changes chan observation) {
	put := func(s observation) {
		select {
		case <-changes:
		default:
		}
		changes <- s
	}
	for ctx.Err() == nil {
		v, err := c.View(ctx, gr.Leases)
		if err != nil { // contend reads the Lease from the server meanwhile
			_ = wait.Sleep(ctx, l.term()/8)
			continue
		}
		for ev := range v.Events(ctx) {
			switch {
			case ev.Gap || ev.Object.GetNamespace() != metav1.NamespaceSystem || ev.Object.GetName() != l.Lease:
			case ev.Deleted:
				put(observation{rev: ev.Rev})
			default:
				put(observationOf(ev.Object.(*coordinationv1.Lease)))
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
	return changed
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
func (l *Leadership) acquire(ctx context.Context, log *slog.Logger, c client.Client, changes <-chan observation) *heldLease {
	failed := false
	for ctx.Err() == nil {
		if left := l.timeUntilFree(); left > 0 {
			expiry := time.NewTimer(left)
			select {
			case <-ctx.Done():
			case s := <-changes:
				l.observe(s)
			case <-expiry.C:
			}
			expiry.Stop()
			continue
		}
		since := time.Now()
		held, err := l.takeIfFree(ctx, c)
		switch {
		case held != nil:
			return &heldLease{held, since}
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
func (l *Leadership) takeIfFree(ctx context.Context, c client.Client) (*coordinationv1.Lease, error) {
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
	held, err := l.take(ctx, c, lease)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return held, nil
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

// hold runs lead and renews the Lease, until renewing fails for too long or ctx ends. When ctx ends the Lease is released,
// after lead has returned.
func (l *Leadership) hold(ctx context.Context, log *slog.Logger, c client.Client, held *heldLease, lead func(context.Context)) {
	l.setLeads(true)
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { lead(work) })
	until := func() time.Time { return held.since.Add(l.term() * 2 / 3) }
	for interval := l.term() / 4; ctx.Err() == nil && time.Now().Before(until()); {
		_ = wait.Sleep(ctx, interval)
		began := time.Now()
		try, end := context.WithDeadline(ctx, until())
		next, err := l.renew(try, c, held.lease)
		end()
		if err == nil {
			held, interval = &heldLease{next, began}, l.term()/4
			continue
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // another process has taken or deleted the Lease
			break
		}
		interval = l.term() / 16
	}
	stop()
	wg.Wait()
	l.setLeads(false)
	if ctx.Err() == nil {
		log.WarnContext(ctx, "stopped leading", "lease", l.Lease, "identity", l.Identity)
		return
	}
	l.release(context.WithoutCancel(ctx), c, held.lease)
}

// setLeads stores whether this process leads. When it stops leading, no leader is known until the Lease is observed again.
func (l *Leadership) setLeads(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leads = leads; !leads {
		l.known = observation{at: time.Now(), rev: l.known.rev}
	}
}

// renew writes the renewal time into the Lease. A conflict may come from an earlier attempt whose answer was lost: then this
// process still holds the Lease, and renew tries once more.
func (l *Leadership) renew(ctx context.Context, c client.Client, held *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	for tries := 0; ; tries++ {
		next := held.DeepCopy()
		next.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
		lease, err := leaseOf(c.Update(ctx, gr.Leases, next, ""))
		if !apierrors.IsConflict(err) || tries > 0 {
			return lease, err
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
