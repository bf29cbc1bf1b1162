// Package fairqueue is API Priority and Fairness: it limits concurrent requests, and shares the server between its
// users, as FlowSchemas and PriorityLevelConfigurations say. A request is classified by the first schema that matches
// it, and belongs to that schema's priority level. Levels have seats, in proportion to their shares; a request takes
// one or more for as long as it runs. When a level has no free seat, its requests wait in queues that are served in
// turn, so that a flood of one user does not delay the others, or they are rejected.
//
// Terms, numbers and results are upstream's. One thing is simpler: seats that a level does not need are lent when
// another level asks for them, and not by a forecast every ten seconds. A level gets lent seats back as soon as a
// request ends, because levels below their share are served before those above it.
package fairqueue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Request holds the attributes of a request by which it is classified.
type Request struct {
	User user.Info
	Verb string
	// The first fields are for a resource request, Path is for any other request.
	IsResource                              bool
	Group, Resource, Subresource, Namespace string
	Path                                    string
}

// ErrBusy is the error for a request that is rejected and has to be retried later.
var ErrBusy = errors.New("too many requests, please try again later.")

// MaxWait is how long a request waits for a seat.
const MaxWait = 15 * time.Second

// Dispatcher divides the seats of the server between priority levels, and dispatches requests.
type Dispatcher struct {
	total   int
	metrics *Metrics
	plan    atomic.Pointer[plan]

	mu       sync.Mutex // guards what follows, and the counts of the levels
	levels   map[string]*level
	reserved int                     // seats that are taken, or that their level may take at any time
	allSeats int                     // all seats
	waiting  int                     // requests in all queues
	counts   map[[2]string]*counters // by schema and level
}

// plan is the list of schemas by which requests are classified. It is immutable, and replaced as a whole.
type plan struct {
	schemas []*schema // in the order in which they are tried
}

// New returns a sharing with a number of seats, and with the schemas and levels that every cluster starts with.
func New(seats int) *Dispatcher {
	s := &Dispatcher{total: seats, metrics: newMetrics(), levels: map[string]*level{}, counts: map[[2]string]*counters{}}
	s.metrics.read = s.snapshot
	s.Set(nil, nil)
	return s
}

// Metrics returns the metrics of the sharing.
func (s *Dispatcher) Metrics() *Metrics { return s.metrics }

// Set replaces the schemas and levels. The mandatory ones are added where they are missing. Requests that run or wait
// stay in their level.
func (s *Dispatcher) Set(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) {
	schemas, levels = withMandatory(schemas, levels)
	each, room := divideSeats(s.total, levels)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[string]*level, len(levels))
	for _, config := range levels {
		l := s.levels[config.Name]
		if l == nil {
			l = &level{name: config.Name}
		}
		l.set(config, each[config.Name])
		now[config.Name] = l
	}
	for name, l := range s.levels {
		if now[name] == nil && l.isBusy() { // it keeps its seats until its last request has ended
			l.deleted = true
			now[name] = l
			room += l.nominal
		}
	}
	s.levels, s.allSeats, s.reserved = now, room, 0
	for _, l := range now {
		s.reserved += l.reservedSeats()
	}
	s.plan.Store(s.newPlan(schemas))
	s.dispatch()
}

// newPlan makes a plan of schemas. A schema without an existing level is left out.
func (s *Dispatcher) newPlan(schemas []*flowcontrolv1.FlowSchema) *plan {
	p, used := &plan{}, map[[2]string]bool{}
	for _, config := range schemas {
		l := s.levels[config.Spec.PriorityLevelConfiguration.Name]
		if l == nil || l.deleted {
			continue
		}
		key := [2]string{config.Name, l.name}
		used[key] = true
		if s.counts[key] == nil {
			s.counts[key] = s.metrics.countersFor(config.Name, l.name)
		}
		p.schemas = append(p.schemas, newSchema(config, l, s.counts[key]))
	}
	for key, c := range s.counts {
		if !used[key] && c.isIdle() {
			s.metrics.forget(c)
			delete(s.counts, key)
		}
	}
	return p
}

// snapshot returns the current numbers for the metrics.
func (s *Dispatcher) snapshot() (flows []*counters, levels map[string]bounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	flows, levels = slices.Collect(maps.Values(s.counts)), map[string]bounds{}
	for name, l := range s.levels {
		levels[name] = l.bounds
	}
	return flows, levels
}

// Flow is the schema and level that a request belongs to.
type Flow struct {
	// Schema and Level are names. Clients are told the UIDs.
	Schema, Level       string
	SchemaUID, LevelUID types.UID

	sharing *Dispatcher
	schema  *schema
	flow    string // distinguishes the flows of the schema
}

// Classify returns the flow of a request.
func (s *Dispatcher) Classify(a *Request) Flow {
	all := s.plan.Load().schemas
	sc := all[len(all)-1] // the last one is catch-all, which always exists
	for _, it := range all {
		if it.matches(a) {
			sc = it
			break
		}
	}
	return Flow{Schema: sc.name, Level: sc.level.name, SchemaUID: sc.uid, LevelUID: sc.levelUID, sharing: s, schema: sc,
		flow: sc.distinguish(a)}
}

// IsContested reports whether requests wait for a seat of this flow's level. In an exempt level nothing waits.
func (f *Flow) IsContested() bool {
	if f.schema == nil {
		return false
	}
	f.sharing.mu.Lock()
	defer f.sharing.mu.Unlock()
	return f.schema.level.waiting > 0
}

// Enter waits until the request may run. The function that it returns must be called when the request has ended. width
// is the number of seats that it takes at most; 1 is usual.
func (f Flow) Enter(ctx context.Context, width int) (leave func(), err error) {
	if f.schema == nil {
		return func() {}, nil
	}
	s, sc := f.sharing, f.schema
	begin := time.Now()
	s.mu.Lock()
	l := sc.level
	w := &waiter{schema: sc, flow: flowName{sc.name, f.flow}, width: l.limitWidth(width)}
	switch {
	case l.exempt:
		s.mu.Unlock()
		w.width = 0
		return s.startRequest(w, begin, begin), nil
	case l.mayBypassQueues(w) && s.fits(l, w):
		s.takeSeats(l, w)
		s.mu.Unlock()
		return s.startRequest(w, begin, begin), nil
	case !l.hasQueues():
		s.mu.Unlock()
		s.metrics.rejected(sc.counters, "concurrency-limit", 0)
		return nil, ErrBusy
	}
	if !l.enqueue(w) {
		s.mu.Unlock()
		s.metrics.rejected(sc.counters, "queue-full", 0)
		return nil, ErrBusy
	}
	s.waiting++
	s.mu.Unlock()
	return s.waitForSeat(ctx, w, begin)
}

// waitForSeat waits for a seat.
func (s *Dispatcher) waitForSeat(ctx context.Context, w *waiter, begin time.Time) (leave func(), err error) {
	timer := time.NewTimer(MaxWait)
	defer timer.Stop()
	reason := "time-out"
	err = ErrBusy
	select {
	case <-w.called:
		return s.startRequest(w, begin, time.Now()), nil
	case <-timer.C:
	case <-ctx.Done():
		reason, err = "cancelled", ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.queue.drop(w) {
		s.waiting--
	} else { // it got a seat at the last moment, which is released
		s.releaseSeats(w.schema.level, w)
	}
	s.metrics.rejected(w.schema.counters, reason, time.Since(begin))
	return nil, err
}

// startRequest counts a request that runs now, and returns the function that ends it.
func (s *Dispatcher) startRequest(w *waiter, begin, now time.Time) (leave func()) {
	counts := w.schema.counters
	counts.started(w.width, now.Sub(begin))
	return func() {
		took := time.Since(now)
		counts.ended(w.width, took)
		if w.width == 0 {
			return // it was exempt
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.queue != nil {
			w.queue.correct(w.width, took)
		}
		s.releaseSeats(w.schema.level, w)
	}
}
