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
	l  *local
	ws mvcc.WatchStream

	pumping sync.WaitGroup
	// changed is sent when queue or err has changed.
	changed wait.Signal

	// mu guards the fields below.
	mu sync.Mutex
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

// pump moves events from the etcd stream into the queue until the stream is closed. etcd delivers through a channel of
// 128 responses; a watch that lets it fill up is served only every tenth of a second from then on. A burst of writes
// would fill the channel while the consumer handles a batch, so it is emptied by a goroutine of its own.
func (s *localStream) pump() {
	for r := range s.ws.Chan() {
		mvcc.ReportEventReceived(len(r.Events))
		s.l.reach(r.Revision)
		s.mu.Lock()
		for len(s.queue.events) >= maxQueue && !s.closed {
			s.room.Wait()
		}
		if s.err == nil {
			s.err = s.queue.add(r)
		}
		s.mu.Unlock()
		s.changed.Send()
	}
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

// add appends one response. etcd never splits a revision over two responses. The revision of a response with events
// must not be used as progress: it may be ahead of events that come with the next response.
func (n *eventBatch) add(r mvcc.WatchResponse) error {
	switch {
	case r.CompactRevision != 0:
		return mvcc.ErrCompacted
	case len(r.Events) == 0:
		n.rev = max(n.rev, r.Revision)
		return nil
	}
	if n.events == nil {
		n.events = r.Events
	} else {
		n.events = append(n.events, r.Events...)
	}
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

func (s *localStream) ask(context.Context) { s.ws.RequestProgressAll() }

func (s *localStream) close() {
	s.mu.Lock()
	s.closed = true
	s.room.Signal()
	s.mu.Unlock()
	s.ws.Close()
	s.pumping.Wait()
}
