package tracesource

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/state"
)

// Limits bound what the readers of traces cost together, and what they learn of others.
type Limits struct {
	// Created returns when a namespace was created, and false if it does not exist. Records of a namespace from before that are about
	// another one with the same name, whose objects the reader could not get. Without the function they are not told apart.
	Created func(namespace string) (time.Time, bool)
	slots   chan struct{} // has a value for each trace that is being made

	mu      sync.Mutex // guards what follows
	clients map[string]*clientSlots
}

// clientSlots are the slots of one client who makes or waits for traces.
type clientSlots struct {
	slots    chan struct{}
	requests int
}

// maxTraces is how many traces are made at the same time, and maxTracesOfClient how many of them for one client: the others do not wait
// behind all that it asks for.
const maxTraces, maxTracesOfClient = 4, 2

// NewLimits returns the limits of a server. The function returns its state.
func NewLimits(objects func() *state.State) *Limits {
	created := func(namespace string) (time.Time, bool) {
		o, exists := state.NodeView{State: objects()}.Object(gr.Namespaces, "", namespace)
		if !exists {
			return time.Time{}, false
		}
		return o.GetCreationTimestamp().Time, true
	}
	return &Limits{Created: created, slots: make(chan struct{}, maxTraces)}
}

// enter waits until a trace may be made for a user; the caller calls leave at the end. Nil limits let everybody in.
func (l *Limits) enter(ctx context.Context, user string) (leave func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	client := hop.ClientKey(user)
	own := l.addRequest(client)
	busy := apierrors.NewTooManyRequests("the server is busy with other traces; ask again in a second", 1)
	select {
	case own.slots <- struct{}{}:
	case <-ctx.Done():
		l.removeRequest(client)
		return nil, busy
	}
	leaveOwn := func() {
		<-own.slots
		l.removeRequest(client)
	}
	select {
	case l.slots <- struct{}{}:
		return func() {
			<-l.slots
			leaveOwn()
		}, nil
	case <-ctx.Done():
		leaveOwn()
		return nil, busy
	}
}

// addRequest returns the slots of a client, which are kept until removeRequest was called as often.
func (l *Limits) addRequest(client string) *clientSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		l.clients = map[string]*clientSlots{}
	}
	own := l.clients[client]
	if own == nil {
		own = &clientSlots{slots: make(chan struct{}, maxTracesOfClient)}
		l.clients[client] = own
	}
	own.requests++
	return own
}

// removeRequest says that a request of a client has ended.
func (l *Limits) removeRequest(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients[client].requests--; l.clients[client].requests == 0 {
		delete(l.clients, client)
	}
}

// present leaves out the records of namespaces that were deleted and created again. It changes the slice.
func (l *Limits) present(records []hop.Record) []hop.Record {
	if l == nil || l.Created == nil {
		return records
	}
	began := map[string]time.Time{}
	return slices.DeleteFunc(records, func(r hop.Record) bool {
		if r.Namespace == "" {
			return false
		}
		at, known := began[r.Namespace]
		if !known {
			at, _ = l.Created(r.Namespace) // what has no namespace any more needs rights in all namespaces
			began[r.Namespace] = at
		}
		return r.Start.Before(at)
	})
}
