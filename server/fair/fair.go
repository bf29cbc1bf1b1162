// Package fair shares the server out between its users, as FlowSchemas and PriorityLevelConfigurations say. A request is
// classified by the first schema that matches it, and belongs to that schema's priority level. Levels have seats, in
// proportion to their shares; a request takes one or more for as long as it runs. When a level has none left, its requests
// wait in queues that are served in turn, so that one flood does not hold up the others, or they are refused.
//
// The words, the numbers and the outcome are Kubernetes'. One thing is simpler: seats that a level does not need are lent
// at the moment somebody asks for them, and not by a forecast every ten seconds. What a level has lent comes back as soon
// as a request ends, because levels below their share are served before those above it.
package fair

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

// Ask is a request as far as it matters here.
type Ask struct {
	User user.Info
	Verb string
	// A request for a resource has these, another one has a path.
	IsResource                              bool
	Group, Resource, Subresource, Namespace string
	Path                                    string
}

// ErrBusy says that a request has to be sent again later.
var ErrBusy = errors.New("too many requests, please try again later.")

// Longest is how long a request waits for a seat.
const Longest = 15 * time.Second

// Sharing is how the server is shared out at present.
type Sharing struct {
	total   int
	metrics *Metrics
	plan    atomic.Pointer[plan]

	mu       sync.Mutex // guards what follows, and what the levels count
	levels   map[string]*level
	reserved int                     // seats that are taken, or that their level may take at any time
	room     int                     // all seats there are
	waiting  int                     // requests in all queues
	counts   map[[2]string]*counters // by schema and level
}

// plan is what requests are classified by. It never changes; another one takes its place.
type plan struct {
	schemas []*schema // in the order in which they are tried
}

// New makes a sharing of a number of seats, with the schemas and levels that every cluster begins with.
func New(seats int) *Sharing {
	s := &Sharing{total: seats, metrics: newMetrics(), levels: map[string]*level{}, counts: map[[2]string]*counters{}}
	s.metrics.read = s.numbers
	s.Set(nil, nil)
	return s
}

// Metrics are the numbers of the sharing.
func (s *Sharing) Metrics() *Metrics { return s.metrics }

// Set replaces the schemas and levels. Those that every cluster must have are added where they are missing. Requests that
// run or wait stay in their level.
func (s *Sharing) Set(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) {
	schemas, levels = complete(schemas, levels)
	each, room := share(s.total, levels)
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
		if now[name] == nil && l.busy() { // it keeps its seats, and goes when its last request has
			l.gone = true
			now[name] = l
			room += l.nominal
		}
	}
	s.levels, s.room, s.reserved = now, room, 0
	for _, l := range now {
		s.reserved += l.holds()
	}
	s.plan.Store(s.newPlan(schemas))
	s.dispatch()
}

// newPlan makes a plan of schemas. One whose level is not there matches nothing.
func (s *Sharing) newPlan(schemas []*flowcontrolv1.FlowSchema) *plan {
	p, used := &plan{}, map[[2]string]bool{}
	for _, config := range schemas {
		l := s.levels[config.Spec.PriorityLevelConfiguration.Name]
		if l == nil || l.gone {
			continue
		}
		key := [2]string{config.Name, l.name}
		used[key] = true
		if s.counts[key] == nil {
			s.counts[key] = s.metrics.of(config.Name, l.name)
		}
		p.schemas = append(p.schemas, newSchema(config, l, s.counts[key]))
	}
	for key, c := range s.counts {
		if !used[key] && c.idle() {
			s.metrics.forget(c)
			delete(s.counts, key)
		}
	}
	return p
}

// numbers are what the metrics show of the present.
func (s *Sharing) numbers() (flows []*counters, levels map[string]bounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	flows, levels = slices.Collect(maps.Values(s.counts)), map[string]bounds{}
	for name, l := range s.levels {
		levels[name] = l.bounds
	}
	return flows, levels
}

// Flow is where a request belongs.
type Flow struct {
	// Schema and Level are names. The UIDs are what clients are told.
	Schema, Level       string
	SchemaUID, LevelUID types.UID

	sharing *Sharing
	schema  *schema
	flow    string // what tells flows of the schema apart
}

// Classify finds the flow of a request.
func (s *Sharing) Classify(a *Ask) Flow {
	all := s.plan.Load().schemas
	sc := all[len(all)-1] // the last one is catch-all, which is always there
	for _, it := range all {
		if it.matches(a) {
			sc = it
			break
		}
	}
	return Flow{Schema: sc.name, Level: sc.level.name, SchemaUID: sc.uid, LevelUID: sc.levelUID, sharing: s, schema: sc, flow: sc.distinguish(a)}
}

// Contested says that requests wait for a seat of the level of this one. An exempt level has no seats to wait for.
func (f *Flow) Contested() bool {
	if f.schema == nil {
		return false
	}
	f.sharing.mu.Lock()
	defer f.sharing.mu.Unlock()
	return f.schema.level.waiting > 0
}

// Enter waits until the request may run. What it returns must be called when it has; width is how many seats it takes at
// most, and 1 is usual.
func (f Flow) Enter(ctx context.Context, width int) (leave func(), err error) {
	if f.schema == nil {
		return func() {}, nil
	}
	s, sc := f.sharing, f.schema
	begin := time.Now()
	s.mu.Lock()
	l := sc.level
	w := &waiter{schema: sc, flow: flowName{sc.name, f.flow}, width: l.clip(width)}
	switch {
	case l.exempt:
		s.mu.Unlock()
		w.width = 0
		return s.start(w, begin, begin), nil
	case l.mayPass(w) && s.fits(l, w):
		s.take(l, w)
		s.mu.Unlock()
		return s.start(w, begin, begin), nil
	case !l.queues():
		s.mu.Unlock()
		s.metrics.rejected(sc.counters, "concurrency-limit", 0)
		return nil, ErrBusy
	}
	if !l.join(w) {
		s.mu.Unlock()
		s.metrics.rejected(sc.counters, "queue-full", 0)
		return nil, ErrBusy
	}
	s.waiting++
	s.mu.Unlock()
	return s.wait(ctx, w, begin)
}

// wait waits for a seat.
func (s *Sharing) wait(ctx context.Context, w *waiter, begin time.Time) (leave func(), err error) {
	timer := time.NewTimer(Longest)
	defer timer.Stop()
	reason := "time-out"
	err = ErrBusy
	select {
	case <-w.called:
		return s.start(w, begin, time.Now()), nil
	case <-timer.C:
	case <-ctx.Done():
		reason, err = "cancelled", ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.queue.drop(w) {
		s.waiting--
	} else { // called at the last moment: the seat is ours, and goes to the next
		s.give(w.schema.level, w)
	}
	s.metrics.rejected(w.schema.counters, reason, time.Since(begin))
	return nil, err
}

// start counts a request that runs now, and returns what ends it.
func (s *Sharing) start(w *waiter, begin, now time.Time) (leave func()) {
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
		s.give(w.schema.level, w)
	}
}
