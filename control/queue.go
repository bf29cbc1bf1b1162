package control

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// queue hands each key to one worker at a time, merges repeats, and backs off after errors.
type queue struct {
	mu      sync.Mutex // guards what follows
	state   map[Key]state
	fails   map[Key]failure
	causes  map[Key]cause // the newest for each key that waits
	order   []Key
	timers  map[Key]*time.Timer
	since   map[Key]time.Time // when a key began to wait, or to be worked on
	stopped bool
	wake    chan struct{}

	// What is counted; nil when nobody asks.
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
	return &queue{state: map[Key]state{}, fails: map[Key]failure{}, causes: map[Key]cause{}, timers: map[Key]*time.Timer{}, since: map[Key]time.Time{}, wake: make(chan struct{}, 1)}
}

// add brings a key, and says why; a cause at revision 0 is none.
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
		q.enqueue(k)
	case running:
		q.state[k] = rerun
	case waiting, rerun: // its turn is still to come
	}
}

// enqueue lets a key wait for a worker.
func (q *queue) enqueue(k Key) {
	q.state[k] = waiting
	q.since[k] = time.Now()
	q.order = append(q.order, k)
	if q.adds != nil {
		q.adds.Inc()
	}
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for a key; it returns false when ctx has ended.
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
				q.signal()
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

// observe notes the time since a moment, and returns the present.
func observe(o prometheus.Observer, since time.Time) time.Time {
	now := time.Now()
	if o != nil {
		o.Observe(now.Sub(since).Seconds())
	}
	return now
}

// done ends the work on a key. again, or an error, brings it back later; a change meanwhile brings it back now.
func (q *queue) done(k Key, again time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		f := q.fails[k]
		again = min(firstDelay<<min(f.times, 18), lastDelay)
		if f.times == 0 {
			f.since = time.Now()
		}
		q.fails[k] = failure{f.times + 1, f.since, err}
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
	if again > 0 && !q.stopped {
		if t := q.timers[k]; t != nil {
			t.Stop()
		}
		var t *time.Timer
		t = time.AfterFunc(again, func() {
			q.mu.Lock()
			if q.timers[k] == t {
				delete(q.timers, k)
			}
			q.mu.Unlock()
			q.add(k, cause{})
		})
		q.timers[k] = t
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
