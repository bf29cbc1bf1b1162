package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
)

// Leadership lets one of several processes work, by a Lease in kube-system. Who leads renews the Lease; when that stops,
// another takes over after Patience, and when it is given back, at once.
//
// Nobody's clock is compared with another's: a follower counts from when it saw the Lease change, a leader from before
// its last renewal was sent, and stops well before Patience is over.
type Leadership struct {
	Lease    string
	Identity string
	// Patience is how long a Lease counts without being renewed; zero for a second and a half.
	Patience time.Duration
}

// Run calls lead whenever this process leads, with a context that ends when it no longer does. It returns when ctx ends.
func (l Leadership) Run(ctx context.Context, log *slog.Logger, c client.Client, lead func(context.Context)) error {
	if l.Patience == 0 {
		l.Patience = 1500 * time.Millisecond
	}
	v, err := c.View(ctx, gr.Leases)
	if err != nil {
		return fmt.Errorf("open view of leases: %w", err)
	}
	changes := make(chan *coordinationv1.Lease, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.follow(ctx, v, changes) })
	for ctx.Err() == nil {
		held, err := l.contend(ctx, c, changes)
		if err != nil {
			if ctx.Err() == nil {
				log.WarnContext(ctx, "cannot take the lead", "lease", l.Lease, "err", err)
			}
			pause(ctx, l.Patience/4)
			continue
		}
		log.InfoContext(ctx, "leads", "lease", l.Lease, "identity", l.Identity)
		l.hold(ctx, log, c, held, lead)
	}
	return nil
}

// follow hands over the Lease whenever it changes; nil when there is none. Only the newest state waits.
func (l Leadership) follow(ctx context.Context, v client.View, changes chan *coordinationv1.Lease) {
	put := func(lease *coordinationv1.Lease) {
		select {
		case <-changes:
		default:
		}
		changes <- lease
	}
	put(nil)
	if o, found := v.Get(metav1.NamespaceSystem, l.Lease); found {
		put(o.(*coordinationv1.Lease))
	}
	for ev := range v.Events(ctx) {
		switch {
		case ev.Gap || ev.Object.GetNamespace() != metav1.NamespaceSystem || ev.Object.GetName() != l.Lease:
		case ev.Deleted:
			put(nil)
		default:
			put(ev.Object.(*coordinationv1.Lease))
		}
	}
}

// contend waits until the Lease is free and takes it.
func (l Leadership) contend(ctx context.Context, c client.Client, changes <-chan *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	seen := <-changes
	for ctx.Err() == nil {
		if seen == nil || holder(seen) == "" || holder(seen) == l.Identity {
			held, err := l.take(ctx, c, seen)
			if err == nil || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				return held, err
			}
		}
		overdue := time.NewTimer(l.Patience)
		select {
		case <-ctx.Done():
		case seen = <-changes:
		case <-overdue.C:
			// Nothing has come from the holder for the whole time. If it wrote meanwhile, this is a conflict.
			held, err := l.take(ctx, c, seen)
			if err == nil {
				return held, nil
			}
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
		overdue.Stop()
	}
	return nil, ctx.Err()
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// take writes this process into the Lease that was seen, or makes it.
func (l Leadership) take(ctx context.Context, c client.Client, seen *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	now := metav1.NewMicroTime(time.Now())
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &l.Identity, LeaseDurationSeconds: new(int32((l.Patience + time.Second - 1) / time.Second)),
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(0)),
	}
	if seen == nil {
		o, err := c.Create(ctx, gr.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: l.Lease}, Spec: spec})
		return leaseOf(o, err)
	}
	next := seen.DeepCopy()
	if n := next.Spec.LeaseTransitions; n != nil {
		*spec.LeaseTransitions = *n
	}
	if holder(seen) != l.Identity {
		*spec.LeaseTransitions++
	}
	next.Spec = spec
	o, err := c.Update(ctx, gr.Leases, next, "")
	return leaseOf(o, err)
}

func leaseOf(o any, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return o.(*coordinationv1.Lease), nil
}

// hold leads, and renews the Lease, until that fails for too long or ctx ends. When it ends in peace the Lease is given
// back, after lead has returned.
func (l Leadership) hold(ctx context.Context, log *slog.Logger, c client.Client, held *coordinationv1.Lease, lead func(context.Context)) {
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { lead(work) })
	last := time.Now()
	for ctx.Err() == nil && time.Since(last) < l.Patience*2/3 {
		pause(ctx, l.Patience/4)
		began := time.Now()
		try, end := context.WithDeadline(ctx, last.Add(l.Patience*2/3))
		next := held.DeepCopy()
		next.Spec.RenewTime = new(metav1.NewMicroTime(began))
		o, err := c.Update(try, gr.Leases, next, "")
		end()
		if err == nil {
			held, last = o.(*coordinationv1.Lease), began
			continue
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // somebody else has taken it, or taken it away
			break
		}
	}
	stop()
	wg.Wait()
	if ctx.Err() == nil {
		log.WarnContext(ctx, "no longer leads", "lease", l.Lease, "identity", l.Identity)
		return
	}
	l.giveBack(context.WithoutCancel(ctx), c, held)
}

// giveBack frees the Lease; if that fails, it runs out.
func (l Leadership) giveBack(ctx context.Context, c client.Client, held *coordinationv1.Lease) {
	ctx, stop := context.WithTimeout(ctx, l.Patience)
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
