package fairqueue

import (
	"context"
	"math"
	"sync"
	"time"
)

// Processors divides the CPUs between users. Seats limit how many requests are served at the same time, most of which
// wait for a disk or a client; this limits how many of them compute. If all of them did at once, each would wait for
// all others in the queue of the Go scheduler, which knows no users and gives everybody ten milliseconds: beside two
// hundred long lists a short request would take a second.
//
// Two rules make a short request short. The requests that take slots leave one CPU to the rest of the process (if there
// are two or more): to goroutines that read from connections, wait for the disk and feed the caches. And a user who
// computes less than its share of the CPUs does not wait for the others: one request of it runs beside theirs.
type Processors struct {
	count int // CPUs
	slots int // requests that may compute at the same time, in addition to the first of every light user

	mu        sync.Mutex // guards what follows
	taken     int
	users     map[string]*usage
	queue     []*usage      // users with waiting requests
	clock     time.Duration // the virtual time of the user that last got a slot
	last      time.Time     // when a request last got a turn
	lastSweep time.Time     // when idle users were last removed
}

// usage is what one user computes.
type usage struct {
	running int
	waiting []*Work
	served  time.Duration // CPU time that it has had, in virtual time
	recent  float64       // seconds that it has computed, decaying exponentially
	seen    time.Time     // when recent was updated
}

// Work is the computing of one request, which it does in turns. The zero value and nil never wait. It is for one
// goroutine.
type Work struct {
	from   *Processors
	user   string
	usage  *usage // nil between turns
	slot   bool
	begun  time.Time
	called chan struct{}
	// Waited is how long the request has waited in Begin, in all of its turns.
	Waited time.Duration
}

const (
	// usageDecay is the time constant of the decay of a user's recent usage.
	usageDecay = 250 * time.Millisecond
	// idleTimeout is the time after which a user without requests is not counted among those who share.
	idleTimeout = 10 * time.Second
	// lightShare is the part of its share up to which a user is a light one.
	lightShare = 0.75
	// stuckTimeout is when a waiting request starts although no turn has ended: those who have a turn seem to be
	// blocked themselves.
	stuckTimeout = 50 * time.Millisecond
)

// NewProcessors divides a number of CPUs.
func NewProcessors(count int) *Processors {
	return &Processors{count: count, slots: max(1, count-1), users: map[string]*usage{}}
}

// For returns the work of a request of a user.
func (p *Processors) For(user string) Work { return Work{from: p, user: user} }

// Begin waits until the request may compute. End must be called before it waits for anything: a disk, a client, another
// server.
func (w *Work) Begin(ctx context.Context) error {
	if w == nil || w.from == nil || w.usage != nil {
		return nil
	}
	p, now := w.from, time.Now()
	p.mu.Lock()
	u := p.usageOf(w.user, now)
	switch {
	case u.running == 0 && len(u.waiting) == 0 && p.isLight(u, now):
		w.start(u, false, now)
	case p.taken < p.slots && len(p.queue) == 0:
		p.taken++
		p.last = now
		w.start(u, true, now)
	default:
		w.called = make(chan struct{})
		p.join(u, w)
		p.mu.Unlock()
		err := p.wait(ctx, u, w)
		w.Waited += time.Since(now)
		return err
	}
	p.mu.Unlock()
	return nil
}

// End ends a turn. It may be called more than once.
func (w *Work) End() {
	if w == nil || w.usage == nil {
		return
	}
	u, p, now := w.usage, w.from, time.Now()
	took := now.Sub(w.begun)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.usage = nil
	u.running--
	u.served += took
	u.decay(now)
	u.recent += took.Seconds()
	if w.slot {
		p.taken--
	}
	if u.running == 0 && len(u.waiting) > 0 && p.isLight(u, now) {
		p.giveTurn(u, false, now)
	}
	p.dispatch(now)
}

// wait waits for a turn.
func (p *Processors) wait(ctx context.Context, u *usage, w *Work) error {
	timer := time.NewTimer(stuckTimeout)
	defer timer.Stop()
	for {
		select {
		case <-w.called:
			return nil
		case <-ctx.Done():
			if p.leave(u, w) {
				return ctx.Err()
			}
			return nil // it got a turn at the last moment
		case now := <-timer.C:
			p.relieve(now)
			timer.Reset(stuckTimeout)
		}
	}
}

// relieve gives somebody a turn if nobody got one for too long.
func (p *Processors) relieve(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last) >= stuckTimeout && len(p.queue) > 0 {
		p.taken++
		p.giveTurn(p.next(), true, now)
	}
}

// leave removes a request that waits no longer, and reports whether it was still waiting.
func (p *Processors) leave(u *usage, w *Work) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, it := range u.waiting {
		if it == w {
			u.waiting = append(u.waiting[:i], u.waiting[i+1:]...)
			p.leaveQueue(u)
			return true
		}
	}
	return false
}

// start starts a turn.
func (w *Work) start(u *usage, slot bool, now time.Time) {
	w.usage, w.slot, w.begun = u, slot, now
	u.running++
}

// join puts a request behind the others of its user.
func (p *Processors) join(u *usage, w *Work) {
	if len(u.waiting) == 0 {
		p.queue = append(p.queue, u)
		u.served = max(u.served, p.clock) // an idle user gathers no credit
	}
	u.waiting = append(u.waiting, w)
}

// leaveQueue removes a user from the queue if none of its requests waits.
func (p *Processors) leaveQueue(u *usage) {
	if len(u.waiting) > 0 {
		return
	}
	for i, it := range p.queue {
		if it == u {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			return
		}
	}
}

// next returns the waiting user that has had least. The queue must not be empty.
func (p *Processors) next() *usage {
	best := p.queue[0]
	for _, u := range p.queue[1:] {
		if u.served < best.served {
			best = u
		}
	}
	return best
}

// giveTurn lets the first request of a user start its turn.
func (p *Processors) giveTurn(u *usage, slot bool, now time.Time) {
	w := u.waiting[0]
	u.waiting = u.waiting[1:]
	p.leaveQueue(u)
	if p.last = now; slot {
		p.clock = max(p.clock, u.served)
	}
	w.start(u, slot, now)
	close(w.called)
}

// dispatch gives turns as long as there are slots.
func (p *Processors) dispatch(now time.Time) {
	for p.taken < p.slots && len(p.queue) > 0 {
		p.taken++
		p.giveTurn(p.next(), true, now)
	}
}

// usageOf returns the usage of a user.
func (p *Processors) usageOf(user string, now time.Time) *usage {
	if now.Sub(p.lastSweep) > time.Second {
		p.lastSweep = now
		for name, u := range p.users {
			if u.running == 0 && len(u.waiting) == 0 && now.Sub(u.seen) > idleTimeout {
				delete(p.users, name)
			}
		}
	}
	u := p.users[user]
	if u == nil {
		u = &usage{seen: now}
		p.users[user] = u
	}
	return u
}

// isLight reports whether a user has recently computed less than its share.
func (p *Processors) isLight(u *usage, now time.Time) bool {
	u.decay(now)
	return u.recent/usageDecay.Seconds() < lightShare*float64(p.count)/float64(len(p.users))
}

// decay applies the decay of the recent usage.
func (u *usage) decay(now time.Time) {
	u.recent *= math.Exp(-now.Sub(u.seen).Seconds() / usageDecay.Seconds())
	u.seen = now
}
