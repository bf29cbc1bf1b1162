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
	"proa.dev/kinds/gr"
)

// Leadership lets one of several processes work, by a Lease in kube-system. Who leads renews the Lease; when that stops, another
// takes over after the time that the Lease itself states, and when it is given back, at once.
//
// Nobody's clock is compared with another's: a follower counts from when it saw the Lease change, a leader from before its last
// renewal was sent, and stops well before the time is over. Every wait ends by itself: a follower that hears nothing reads the
// Lease past its view, and tries again while the store does not answer.
type Leadership struct {
	Lease    string
	Identity string
	// Term is how long the Lease counts without being renewed when this process holds it, in whole seconds; zero for two.
	Term time.Duration

	mu sync.Mutex // guards what follows
	// leads says that this process holds the Lease and works.
	leads bool
	// known is what was last seen of the Lease.
	known sighting
}

// sighting is a Lease as a follower saw it; lease is nil when there is none.
type sighting struct {
	lease *coordinationv1.Lease
	rev   int64
	// at is when its spec was first seen; zero before anything was.
	at time.Time
}

// tenure is a Lease that this process holds, and when the last request that wrote it was sent.
type tenure struct {
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

// Run calls lead whenever this process leads, with a context that ends when it no longer does. It returns when ctx ends.
func (l *Leadership) Run(ctx context.Context, log *slog.Logger, c client.Client, lead func(context.Context)) {
	changes := make(chan sighting, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.follow(ctx, c, changes) })
	for ctx.Err() == nil {
		held := l.contend(ctx, log, c, changes)
		if held == nil {
			return
		}
		log.InfoContext(ctx, "leads", "lease", l.Lease, "identity", l.Identity)
		l.hold(ctx, log, c, held, lead)
	}
}

// Check returns an error when nobody is known to lead: neither this process, nor another one whose Lease counts. The holder has
// as long again before that is said, so that a change of leaders is no failure.
func (l *Leadership) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leads {
		return nil
	}
	if l.known.at.IsZero() {
		return fmt.Errorf("the Lease %s/%s could not be read yet", metav1.NamespaceSystem, l.Lease)
	}
	if vacant := time.Since(l.known.at) - l.counts(l.known.lease); vacant > l.term() {
		return fmt.Errorf("nobody has held the Lease %s/%s for %v", metav1.NamespaceSystem, l.Lease, vacant.Round(time.Second))
	}
	return nil
}

// counts is how long a Lease keeps this process from leading after it was last changed. Its holder's own words decide.
func (l *Leadership) counts(lease *coordinationv1.Lease) time.Duration {
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

// follow hands over the Lease whenever a view shows that it changed. Only the newest state waits.
func (l *Leadership) follow(ctx context.Context, c client.Client, changes chan sighting) {
	put := func(s sighting) {
		select {
		case <-changes:
		default:
		}
		changes <- s
	}
	for ctx.Err() == nil {
		v, err := c.View(ctx, gr.Leases)
		if err != nil { // contend reads the Lease itself meanwhile
			pause(ctx, l.term()/8)
			continue
		}
		for ev := range v.Events(ctx) {
			switch {
			case ev.Gap || ev.Object.GetNamespace() != metav1.NamespaceSystem || ev.Object.GetName() != l.Lease:
			case ev.Deleted:
				put(sighting{rev: ev.Rev})
			default:
				put(seen(ev.Object.(*coordinationv1.Lease)))
			}
		}
	}
}

// seen makes the sighting of a Lease that was read.
func seen(lease *coordinationv1.Lease) sighting {
	rev, err := strconv.ParseInt(lease.ResourceVersion, 10, 64)
	if err != nil {
		rev = 0
	}
	return sighting{lease: lease, rev: rev}
}

// observe takes over what was seen, unless something newer is known, and says whether the holder has given a sign of life, or there is
// a new one.
func (l *Leadership) observe(s sighting) (changed bool) {
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

// left is how long this process must not take the Lease yet.
func (l *Leadership) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known.at.IsZero() {
		return 0
	}
	return l.counts(l.known.lease) - time.Since(l.known.at)
}

// contend waits until the Lease is free and takes it. It returns nil when ctx ends.
func (l *Leadership) contend(ctx context.Context, log *slog.Logger, c client.Client, changes <-chan sighting) *tenure {
	failed := false
	for ctx.Err() == nil {
		if left := l.left(); left > 0 {
			overdue := time.NewTimer(left)
			select {
			case <-ctx.Done():
			case s := <-changes:
				l.observe(s)
			case <-overdue.C:
			}
			overdue.Stop()
			continue
		}
		since := time.Now()
		held, err := l.takeIfFree(ctx, c)
		switch {
		case held != nil:
			return &tenure{held, since}
		case err == nil: // somebody else was quicker, or has given a sign of life
			continue
		case !failed && ctx.Err() == nil: // once: an outage of the store may last
			failed = true
			log.WarnContext(ctx, "cannot take the lead; trying again", "lease", l.Lease, "err", err)
		}
		pause(ctx, l.term()/8)
	}
	return nil
}

// takeIfFree takes the Lease unless it has changed since it was last seen: it is read past the view, which may be behind. It returns
// nothing when somebody else holds it.
func (l *Leadership) takeIfFree(ctx context.Context, c client.Client) (*coordinationv1.Lease, error) {
	lease, err := l.read(ctx, c)
	if err != nil {
		return nil, err
	}
	now := sighting{}
	if lease != nil {
		now = seen(lease)
	}
	l.observe(now)
	if l.left() > 0 {
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

// take writes this process into the Lease that was read, or makes it.
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

// hold leads, and renews the Lease, until that fails for too long or ctx ends. When it ends in peace the Lease is given back, after
// lead has returned.
func (l *Leadership) hold(ctx context.Context, log *slog.Logger, c client.Client, held *tenure, lead func(context.Context)) {
	l.setLeads(true)
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { lead(work) })
	until := func() time.Time { return held.since.Add(l.term() * 2 / 3) }
	for wait := l.term() / 4; ctx.Err() == nil && time.Now().Before(until()); {
		pause(ctx, wait)
		began := time.Now()
		try, end := context.WithDeadline(ctx, until())
		next, err := l.renew(try, c, held.lease)
		end()
		if err == nil {
			held, wait = &tenure{next, began}, l.term()/4
			continue
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody else has taken it, or taken it away
			break
		}
		wait = l.term() / 16
	}
	stop()
	wg.Wait()
	l.setLeads(false)
	if ctx.Err() == nil {
		log.WarnContext(ctx, "no longer leads", "lease", l.Lease, "identity", l.Identity)
		return
	}
	l.giveBack(context.WithoutCancel(ctx), c, held.lease)
}

// setLeads notes whether this process leads. When it no longer does, nobody is known to from then on.
func (l *Leadership) setLeads(leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leads = leads; !leads {
		l.known = sighting{at: time.Now(), rev: l.known.rev}
	}
}

// renew writes the time into the Lease. A conflict may come from an earlier try that had no answer: then the Lease is still held.
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

// giveBack frees the Lease; if that fails, it runs out.
func (l *Leadership) giveBack(ctx context.Context, c client.Client, held *coordinationv1.Lease) {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	next := held.DeepCopy()
	next.Spec.HolderIdentity = new("")
	next.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
	_, _ = c.Update(ctx, gr.Leases, next, "")
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
