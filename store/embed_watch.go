package store

import (
	"context"
	"runtime"
	"sync"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"proa.dev/internal/wait"
)

// maxQueue bounds the events that are queued for a slow consumer. Beyond that, they stay in etcd.
const maxQueue = 1 << 16

// localStream is a watch on the member in this process, without the four goroutines of etcd's watch service. Each watch
// has an etcd stream of its own, because etcd answers a progress request only when all watches of a stream are up to
// date.
type localStream struct {
	l      *local
	prefix string

	pumping sync.WaitGroup
	// changed is sent when queue or err has changed.
	changed wait.Signal

	// mu guards the fields below.
	mu sync.Mutex
	ws mvcc.WatchStream
	// queue has the events that next has not returned yet.
	queue eventBatch
	// err ends the watch once the queue is empty.
	err    error
	closed bool
	// room is signalled when the queue was emptied.
	room *sync.Cond
}

// mvccEnd translates a range without end from etcd's API to its storage layer.
func mvccEnd(end []byte) []byte {
	if len(end) == 1 && end[0] == 0 {
		return []byte{}
	}
	return end
}

// pump moves events from the etcd stream into the queue until the stream is closed. last is the revision up to which it has
// all of them. etcd delivers through a channel of 128 responses; a watch that lets it fill up is served only every tenth of a
// second from then on, with a thousand revisions each time. A burst of writes would fill the channel while the consumer
// handles a batch, so it is emptied by a goroutine of its own. On busy processors that may come too late all the same; then
// the watch is joined again.
func (s *localStream) pump(ctx context.Context, last int64) {
	s.mu.Lock()
	ws := s.ws
	s.mu.Unlock()
	late := false
	for {
		var r mvcc.WatchResponse
		open := true
		if late {
			select {
			case r, open = <-ws.Chan():
			default: // what the channel had is read, and what etcd kept back is in the history
				if ws, last = s.rejoin(ctx, last); ws == nil {
					return
				}
				late = false
				continue
			}
		} else {
			r, open = <-ws.Chan()
		}
		if !open {
			return
		}
		late = late || len(ws.Chan()) >= mvcc.ChanBufLen()-1 || revisions(r) > 1
		mvcc.ReportEventReceived(len(r.Events))
		n := eventBatch{}
		err := n.add(r)
		last = max(last, n.rev)
		if !s.push(n, err) {
			return
		}
	}
}

// revisions returns how many revisions a response has, up to 2. etcd sends each alone while a watch is up to date.
func revisions(r mvcc.WatchResponse) int {
	if n := len(r.Events); n == 0 || r.Events[0].Kv.ModRevision == r.Events[n-1].Kv.ModRevision {
		return min(n, 1)
	}
	return 2
}

// push queues events, or the error that ends the stream. It waits while the queue is full. It returns false if the stream has
// ended.
func (s *localStream) push(n eventBatch, err error) bool {
	s.mu.Lock()
	for len(s.queue.events) >= maxQueue && !s.closed {
		s.room.Wait()
	}
	if s.err == nil {
		s.queue.events = append(s.queue.events, n.events...)
		s.queue.rev = max(s.queue.rev, n.rev)
		s.err = err
	}
	ended := s.closed || s.err != nil
	s.mu.Unlock()
	s.changed.Send()
	return !ended
}

// reach waits until reads see a revision. etcd notifies its watches of a change a moment before reads see it; without
// the wait, a client could get an event and then read an older state.
func (l *local) reach(rev int64) {
	for l.server.KV().Rev() < rev {
		runtime.Gosched()
	}
}

func (s *localStream) next(ctx context.Context, wake <-chan struct{}) (eventBatch, error) {
	select {
	case <-s.changed:
	case <-wake:
	case <-ctx.Done():
		return eventBatch{}, ctx.Err()
	}
	n, err := s.take()
	s.l.reach(n.rev)
	return n, err
}

// take empties the queue.
func (s *localStream) take() (eventBatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.queue
	s.queue = eventBatch{}
	s.room.Signal()
	if len(n.events) == 0 && s.err != nil {
		return eventBatch{}, s.err
	}
	if s.err != nil {
		// The events before the error are returned first; the next call returns the error.
		s.changed.Send()
	}
	return n, nil
}

// add sets the events of one response. etcd never splits a revision over two responses. The revision of a response with events
// must not be used as progress: it may be ahead of events that come with the next response.
func (n *eventBatch) add(r mvcc.WatchResponse) error {
	switch {
	case r.CompactRevision != 0:
		return mvcc.ErrCompacted
	case len(r.Events) == 0:
		n.rev = max(n.rev, r.Revision)
		return nil
	}
	n.events = r.Events
	n.rev = max(n.rev, r.Events[len(r.Events)-1].Kv.ModRevision)
	return nil
}

// complete looks up the previous pair of each change, which the store has until it is compacted.
func (s *localStream) complete(ctx context.Context, n eventBatch) error {
	for _, ev := range n.events {
		if isCreate(ev) {
			continue
		}
		p, err := s.l.read(ctx, span{key: ev.Kv.Key, rev: ev.Kv.ModRevision - 1})
		if err != nil {
			return err
		}
		if len(p.kvs) > 0 {
			ev.PrevKv = p.kvs[0]
		}
	}
	return nil
}

func (s *localStream) ask(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ws.RequestProgressAll()
}

func (s *localStream) close() {
	s.mu.Lock()
	s.closed = true
	s.room.Signal()
	ws := s.ws
	s.mu.Unlock()
	ws.Close()
	s.pumping.Wait()
}
