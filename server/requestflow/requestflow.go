// Package requestflow sorts requests into the flows of API priority and fairness, as the FlowSchemas and priority
// levels of the cluster have them, and waits for their seats.
package requestflow

import (
	"context"
	"errors"
	"slices"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/server/apistatus"
	"proa.dev/server/fairqueue"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// Queue is where requests wait for their seats. It keeps a fairqueue.Dispatcher up to date with the FlowSchemas and
// priority levels of the cluster.
type Queue struct {
	*fairqueue.Dispatcher
	state  *state.State
	caches func() [2]*watch.Cache

	mu     sync.Mutex // guards loaded
	loaded [2]int64   // the revisions of the two caches that are in use
}

// New returns a queue that reads FlowSchemas and priority levels from the caches of a State, which start on first use.
func New(s *state.State, shared *fairqueue.Dispatcher) *Queue {
	return &Queue{Dispatcher: shared, state: s, caches: sync.OnceValue(func() [2]*watch.Cache {
		return [2]*watch.Cache{s.Cache(s.Def(gr.FlowSchemas)), s.Cache(s.Def(gr.PriorityLevelConfigurations))}
	})}
}

// reload takes over FlowSchemas and priority levels that have changed. Until they are loaded, those that every cluster
// begins with are used.
func (q *Queue) reload() {
	c := q.caches()
	now := [2]int64{c[0].Rev(), c[1].Rev()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if now == q.loaded || now[0] == 0 || now[1] == 0 {
		return
	}
	q.loaded = now
	q.Set(slices.Collect(state.Cached[*flowcontrolv1.FlowSchema](q.state, gr.FlowSchemas, "")),
		slices.Collect(state.Cached[*flowcontrolv1.PriorityLevelConfiguration](q.state, gr.PriorityLevelConfigurations, "")))
}

// Classify finds the flow that a request belongs to.
func (q *Queue) Classify(a *fairqueue.Request) fairqueue.Flow {
	q.reload()
	return q.Dispatcher.Classify(a)
}

// Enter waits until a request has its seats in its flow. When the queue of the flow is full, the error is 429.
func Enter(ctx context.Context, f *fairqueue.Flow, seats int) (leave func(), err error) {
	leave, err = f.Enter(ctx, seats)
	if errors.Is(err, fairqueue.ErrBusy) {
		err = apistatus.TooManyRequests()
	}
	return leave, err
}
