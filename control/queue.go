package control

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/wait"
)

// queue is a work queue: it hands each key to one worker at a time, merges repeats, and retries failed keys with back-off.
type queue struct {
	mu      sync.Mutex // guards what follows
	state   map[Key]state
	fails   map[Key]failure
	causes  map[Key]cause // the newest for each key that waits
	order   []Key
	timers  map[Key]*time.Timer
	since   map[Key]time.Time // when a key began to wait, or to be reconciled
	stopped bool
	wake    wait.Signal // a key waits

	// Metrics; nil when none are kept.
	adds, retries  prometheus.Counter
	waited, worked prometheus.Observer
}

type state uint8

const (
	waiting state = iota + 1
	running
	rerun
)

const (
	firstDelay = 5 * time.Millisecond
	lastDelay  = 5 * time.Minute
)

func newQueue() *queue {
	return &queue{
		state: map[Key]state{}, fails: map[Key]failure{}, causes: map[Key]cause{}, timers: map[Key]*time.Timer{},
		since: map[Key]time.Time{}, wake: wait.NewSignal(),
	}
}

// add puts a key into the queue with its cause; a cause at revision 0 is none.
func (q *queue) add(k Key, why cause) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	if why.rev > q.causes[k].rev {
		q.causes[k] = why
	}
	switch q.state[k] {
	case 0:
		if f := q.fails[k]; f.isSetAside() && time.Now().Before(f.until) { // the timer adds it again
			return
		}
		q.enqueue(k)
	case running:
		q.state[k] = rerun
	case waiting, rerun: // it will be reconciled anyway
	}
}

// keepCause keeps the cause of an attempt that has failed for the retry, unless a newer write has woken the key meanwhile.
func (q *queue) keepCause(k Key, why cause) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if why.rev > q.causes[k].rev && !q.stopped {
		why.at, why.retry = time.Now(), true
		q.causes[k] = why
	}
}

// enqueue makes a key wait for a worker.
func (q *queue) enqueue(k Key) {
	q.state[k] = waiting
	q.since[k] = time.Now()
	q.order = append(q.order, k)
	if q.adds != nil {
		q.adds.Inc()
	}
	q.wake.Send()
}

// take waits for a key and returns it with its cause; it returns false when ctx has ended.
func (q *queue) take(ctx context.Context) (Key, cause, bool) {
	for {
		q.mu.Lock()
		if len(q.order) > 0 && ctx.Err() == nil {
			k := q.order[0]
			q.order = q.order[1:]
			q.state[k] = running
			why := q.causes[k]
			delete(q.causes, k)
			q.since[k] = observe(q.waited, q.since[k])
			if len(q.order) > 0 {
				q.wake.Send()
			}
			q.mu.Unlock()
			return k, why, true
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return Key{}, cause{}, false
		case <-q.wake:
		}
	}
}

// observe records the time that has passed since a moment, and returns the current time.
func observe(o prometheus.Observer, since time.Time) time.Time {
	now := time.Now()
	if o != nil {
		o.Observe(now.Sub(since).Seconds())
	}
	return now
}

// done ends the reconcile of a key. A positive again, or an error, queues it again later; a change meanwhile queues it now. exceeded
// reports that the reconcile has exceeded its bounds, which done many times in a row sets the key aside.
func (q *queue) done(k Key, again time.Duration, err error, exceeded bool) (setAside bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		f := q.fails[k]
		again = min(firstDelay<<min(f.times, 18), lastDelay)
		if f.times == 0 {
			f.since = time.Now()
		}
		f.times, f.err = f.times+1, err
		if f.exceeded++; !exceeded {
			f.exceeded = 0
		}
		now := time.Now()
		f.from, f.until = now, time.Time{}
		if setAside = f.exceeded >= setAsideAfter && now.Sub(f.since) >= setAsideSince; setAside {
			again, f.until = setAsideFor, now.Add(setAsideFor)
		}
		q.fails[k] = f
		if q.retries != nil {
			q.retries.Inc()
		}
	} else {
		delete(q.fails, k)
	}
	observe(q.worked, q.since[k])
	delete(q.since, k)
	changed := q.state[k] == rerun
	delete(q.state, k)
	if changed && err == nil {
		q.enqueue(k)
	}
	if again > 0 {
		q.addAfter(k, again)
	}
	return setAside
}

// addAfter puts a key into the queue after a time, in place of a time given before. The caller holds mu.
func (q *queue) addAfter(k Key, after time.Duration) {
	if q.stopped {
		return
	}
	if t := q.timers[k]; t != nil {
		t.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(after, func() {
		q.mu.Lock()
		if q.timers[k] == t {
			delete(q.timers, k)
		}
		q.mu.Unlock()
		q.add(k, cause{})
	})
	q.timers[k] = t
}

// hasten lets a key that is set aside be reconciled sooner, because its object has changed.
func (q *queue) hasten(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f, found := q.fails[k]
	if !found || !f.isSetAside() || q.state[k] != 0 {
		return
	}
	if sooner := f.from.Add(retryChanged); sooner.Before(f.until) {
		f.until = sooner
		q.fails[k] = f
		q.addAfter(k, max(time.Until(sooner), time.Millisecond))
	}
}

func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	for _, t := range q.timers {
		t.Stop()
	}
}
