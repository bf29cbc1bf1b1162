package fair

import (
	"context"
	"math"
	"sync"
	"time"
)

// Processors shares the processors out between users. Seats bound how many requests are served at the same time, most of
// which wait for a disk or a client; here it is bounded how many of them compute. If all of them did at once, each would wait for
// all others in the queue of the Go scheduler, which knows no users and gives everybody ten milliseconds: beside two
// hundred long lists a short request would take a second.
//
// Two rules make a short request short. All requests that must wait for each other leave one processor to the rest of the process
// (if there are two or more): to what reads from connections, waits for the disk and feeds the caches. And a user who
// computes less than its share of the processors does not wait for the others: one request of it runs beside theirs.
type Processors struct {
	count int // processors
	slots int // requests that may compute at the same time, beside the first of every light user

	mu    sync.Mutex // guards what follows
	taken int
	users map[string]*usage
	line  []*usage      // users of whom requests wait
	clock time.Duration // what the user had who was last called
	last  time.Time     // when somebody was last called
	swept time.Time     // when users were last forgotten
}

// usage is what one user computes.
type usage struct {
	running int
	waiting []*Work
	served  time.Duration // what it has had, in the virtual time of all
	recent  float64       // seconds that it has computed, of which those of long ago count less
	seen    time.Time     // when recent was right
}

// Work is the computing of one request, which it does in turns. The zero value and nil never wait. It is for one goroutine.
type Work struct {
	from   *Processors
	user   string
	usage  *usage // nil between turns
	slot   bool
	begun  time.Time
	called chan struct{}
}

const (
	// memory is for how long it counts that a user has computed.
	memory = 250 * time.Millisecond
	// forgotten is after which time a user who asks for nothing is not counted among those who share.
	forgotten = 10 * time.Second
	// lightest is the part of its share up to which a user is a light one.
	lightest = 0.75
	// stuck is when somebody who waits goes on although nobody has ended its turn: whoever has one seems to wait for something itself.
	stuck = 50 * time.Millisecond
)

// NewProcessors shares out a number of processors.
func NewProcessors(count int) *Processors {
	return &Processors{count: count, slots: max(1, count-1), users: map[string]*usage{}}
}

// For is the work of a request of a user.
func (p *Processors) For(user string) Work { return Work{from: p, user: user} }

// Begin waits until the request may compute. End must be called before it waits for anything: a disk, a client, another server.
func (w *Work) Begin(ctx context.Context) error {
	if w == nil || w.from == nil || w.usage != nil {
		return nil
	}
	p, now := w.from, time.Now()
	p.mu.Lock()
	u := p.of(w.user, now)
	switch {
	case u.running == 0 && len(u.waiting) == 0 && p.light(u, now):
		w.start(u, false, now)
	case p.taken < p.slots && len(p.line) == 0:
		p.taken++
		p.last = now
		w.start(u, true, now)
	default:
		w.called = make(chan struct{})
		p.join(u, w)
		p.mu.Unlock()
		return p.wait(ctx, u, w)
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
	u.fade(now)
	u.recent += took.Seconds()
	if w.slot {
		p.taken--
	}
	if u.running == 0 && len(u.waiting) > 0 && p.light(u, now) {
		p.call(u, false, now)
	}
	p.dispatch(now)
}

// wait waits for a turn.
func (p *Processors) wait(ctx context.Context, u *usage, w *Work) error {
	timer := time.NewTimer(stuck)
	defer timer.Stop()
	for {
		select {
		case <-w.called:
			return nil
		case <-ctx.Done():
			if p.leave(u, w) {
				return ctx.Err()
			}
			return nil // called at the last moment
		case now := <-timer.C:
			p.relieve(now)
			timer.Reset(stuck)
		}
	}
}

// relieve calls somebody if nobody has been for too long.
func (p *Processors) relieve(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last) >= stuck && len(p.line) > 0 {
		p.taken++
		p.call(p.next(), true, now)
	}
}

// leave takes a request out that waits no longer, and says whether it was still there.
func (p *Processors) leave(u *usage, w *Work) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, it := range u.waiting {
		if it == w {
			u.waiting = append(u.waiting[:i], u.waiting[i+1:]...)
			p.leaveLine(u)
			return true
		}
	}
	return false
}

// start begins a turn.
func (w *Work) start(u *usage, slot bool, now time.Time) {
	w.usage, w.slot, w.begun = u, slot, now
	u.running++
}

// join puts a request behind the others of its user.
func (p *Processors) join(u *usage, w *Work) {
	if len(u.waiting) == 0 {
		p.line = append(p.line, u)
		u.served = max(u.served, p.clock) // who did not ask has no credit
	}
	u.waiting = append(u.waiting, w)
}

// leaveLine takes a user out of the line of whom nobody waits.
func (p *Processors) leaveLine(u *usage) {
	if len(u.waiting) > 0 {
		return
	}
	for i, it := range p.line {
		if it == u {
			p.line = append(p.line[:i], p.line[i+1:]...)
			return
		}
	}
}

// next is the user of those who wait who has had least. There is one.
func (p *Processors) next() *usage {
	best := p.line[0]
	for _, u := range p.line[1:] {
		if u.served < best.served {
			best = u
		}
	}
	return best
}

// call lets the first request of a user begin its turn.
func (p *Processors) call(u *usage, slot bool, now time.Time) {
	w := u.waiting[0]
	u.waiting = u.waiting[1:]
	p.leaveLine(u)
	if p.last = now; slot {
		p.clock = max(p.clock, u.served)
	}
	w.start(u, slot, now)
	close(w.called)
}

// dispatch calls requests as long as there are slots.
func (p *Processors) dispatch(now time.Time) {
	for p.taken < p.slots && len(p.line) > 0 {
		p.taken++
		p.call(p.next(), true, now)
	}
}

// of finds what a user computes.
func (p *Processors) of(user string, now time.Time) *usage {
	if now.Sub(p.swept) > time.Second {
		p.swept = now
		for name, u := range p.users {
			if u.running == 0 && len(u.waiting) == 0 && now.Sub(u.seen) > forgotten {
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

// light says that a user has computed less than its share of late.
func (p *Processors) light(u *usage, now time.Time) bool {
	u.fade(now)
	return u.recent/memory.Seconds() < lightest*float64(p.count)/float64(len(p.users))
}

// fade lets what was computed long ago count less.
func (u *usage) fade(now time.Time) {
	u.recent *= math.Exp(-now.Sub(u.seen).Seconds() / memory.Seconds())
	u.seen = now
}
