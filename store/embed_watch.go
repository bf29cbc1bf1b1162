package store

import (
	"context"
	"runtime"
	"sync"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// maxQueue bounds the events that wait for a slow consumer in memory. Beyond it etcd keeps them.
const maxQueue = 1 << 16

// localStream is a watch on the member's own store, without the four goroutines of etcd's watch service.
// It is the only watch on its etcd stream, because etcd answers a request for progress only when all
// watches of a stream are up to date.
type localStream struct {
	l  *local
	ws mvcc.WatchStream

	pumping sync.WaitGroup
	// more says that there is something in queue or err.
	more chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// queue is what has not been told yet.
	queue news
	// err ends the watch once the queue is empty.
	err    error
	closed bool
	// room is signalled when queue is emptied.
	room *sync.Cond
}

// mvccEnd translates the word for no end between etcd's API and its storage.
func mvccEnd(end []byte) []byte {
	if len(end) == 1 && end[0] == 0 {
		return []byte{}
	}
	return end
}

// pump moves what etcd tells into the queue until the etcd stream is closed. etcd puts a watch aside that
// does not empty a channel of 128 answers in time, and looks after it again only every tenth of a second.
// A burst of writes fills that channel while the consumer is busy with one batch, so somebody has to be quicker.
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
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// reach returns when reads see a revision. etcd tells its watches of a change in the moment before reads do; whoever was told
// and then read would find the past.
func (l *local) reach(rev int64) {
	for l.server.KV().Rev() < rev {
		runtime.Gosched()
	}
}

func (s *localStream) next(ctx context.Context, wake <-chan struct{}) (news, error) {
	select {
	case <-s.more:
	case <-wake:
	case <-ctx.Done():
		return news{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.queue
	s.queue = news{}
	s.room.Signal()
	if len(n.events) == 0 && s.err != nil {
		return news{}, s.err
	}
	if s.err != nil {
		// Tell what came before the end first.
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
	return n, nil
}

// add appends one response. etcd never splits a revision over two of them. The revision of a response with
// events is no promise: it may lie ahead of events that come with the next one.
func (n *news) add(r mvcc.WatchResponse) error {
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

// complete looks up the pair before each change. The store keeps it until it is compacted.
func (s *localStream) complete(ctx context.Context, n news) error {
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
