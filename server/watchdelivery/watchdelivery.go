// Package watchdelivery records when clients got the event of a write by their watches, which is the last part of hop 8, and how much of
// the time was spent waiting for a client that does not read. Only few deliveries are recorded: those to the first watches that get a
// write, and only some in a second. All others cost two looks at the clock.
package watchdelivery

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/watch"
)

const (
	// maxPerWrite is how many deliveries of one write are recorded.
	maxPerWrite = 4
	// interval is the time for each delivery that is recorded, and burst for how long they may come faster.
	interval, burst = 200 * time.Millisecond, 10 * time.Second
	// userInterval is the time for each delivery to one user, so that whoever watches and writes all the time takes a part of them only.
	userInterval = 4 * interval
	// users is how many users are told apart; others share what they may have.
	users = 256
	// maxTogether is how many events a watch may get at a time: one that gets more is behind, or there is too much going on.
	maxTogether = 8
	// slots is how many of the latest writes are told apart.
	slots = 64
	// countBits are the bits of a slot that count deliveries; the others are the revision of the write.
	countBits = 3
)

// Limiter bounds how many deliveries are recorded. The zero value is ready to use.
type Limiter struct {
	all    hop.Budget
	byUser [users]hop.Budget
	writes [slots]atomic.Int64
	once   sync.Once
	seed   maphash.Seed // of the indexes of users, so that nobody chooses whose part he shares
}

// Watch is one watch of a client. On a nil Watch its methods do nothing. They must be called by one goroutine only.
type Watch struct {
	limiter  *Limiter
	recorder *hop.Recorder
	on       schema.GroupResource
	user     string
	budget   *hop.Budget // of the user
	after    int64

	isSending     bool
	sending, last period // of the events that are being sent, and of those before them
}

// period is when events were handed to the connection, and when it had taken them all. It waits for the client if that does not read.
type period struct{ from, to time.Time }

// after returns how much of a period is after a time.
func (p period) after(t time.Time) time.Duration {
	if p.from.After(t) {
		t = p.from
	}
	return max(p.to.Sub(t), 0)
}

// Watch returns a watch of a user that begins with the events after a revision; nil if its deliveries are not recorded: agents
// of nodes report themselves what they receive, and Events, Leases and nodes change all the time without being asked.
func (l *Limiter) Watch(recorder *hop.Recorder, on schema.GroupResource, user string, after int64) *Watch {
	if recorder == nil || strings.HasPrefix(user, "system:node:") {
		return nil
	}
	switch on {
	case gr.Events, schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, gr.Leases, gr.Nodes:
		return nil
	}
	l.once.Do(func() { l.seed = maphash.MakeSeed() })
	budget := &l.byUser[maphash.String(l.seed, hop.ClientKey(user))%users]
	return &Watch{limiter: l, recorder: recorder, on: on, user: user, budget: budget, after: after}
}

// Sending says that an event is handed to the connection of the client, which takes more of them until Sent is called.
func (w *Watch) Sending() {
	if w != nil && !w.isSending {
		w.isSending, w.sending.from = true, time.Now()
	}
}

// Sent says that events were sent to the client.
func (w *Watch) Sent(items []watch.Item) {
	if w == nil {
		return
	}
	now := time.Now()
	if w.sending.to = now; !w.isSending {
		w.sending.from = now
	}
	if len(items) <= maxTogether {
		for _, it := range items {
			// What happened before the watch began was not delayed by the watch.
			if it.Event.Rev > w.after && it.Event.Now != nil && w.limiter.admit(it.Event.Rev, w.budget, now) {
				w.record(it.Event, now)
			}
		}
	}
	w.isSending, w.last = false, w.sending
}

// record records that the client has got an event at a time. If the write is not recorded yet, the record begins and ends then. The event
// has waited for the client while this one and those before it were sent.
func (w *Watch) record(e *watch.Event, now time.Time) {
	o := e.Now.Outline()
	r := hop.Record{
		UID: o.GetUID(), Rev: e.Rev, CauseUID: o.GetUID(), CauseRev: e.Rev, Verb: hop.Deliver, Group: w.on.Group, Resource: w.on.Resource,
		Namespace: o.GetNamespace(), Name: o.GetName(), User: w.user, Start: now,
	}
	if at, known := w.recorder.Committed(r.UID, r.Rev); known && at.Before(now) {
		r.Start, r.Took[hop.Watch] = at, now.Sub(at)
		if wait := w.sending.after(at) + w.last.after(at); wait >= hop.ShortestWait {
			r.Wait[hop.Watch] = wait
		}
	}
	w.recorder.Add(r)
}

// admit reports whether the delivery of a write to a user is recorded.
func (l *Limiter) admit(rev int64, ofUser *hop.Budget, now time.Time) bool {
	return l.all.Has(interval, burst, now) && ofUser.Has(userInterval, burst, now) && l.count(rev) &&
		ofUser.Spend(userInterval, burst, now) && l.all.Spend(interval, burst, now)
}

// count counts a delivery of a write, and reports whether it is among the first.
func (l *Limiter) count(rev int64) bool {
	slot := &l.writes[rev%slots]
	for {
		have := slot.Load()
		next := have + 1
		switch known := have >> countBits; {
		case known > rev, known == rev && have&(1<<countBits-1) >= maxPerWrite:
			return false
		case known < rev:
			next = rev<<countBits + 1
		}
		if slot.CompareAndSwap(have, next) {
			return true
		}
	}
}
