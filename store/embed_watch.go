package store

import (
	"context"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// maxNews bounds the events that a local stream gathers before it tells them.
const maxNews = 1024

// localStream is a watch on the member's own store, without the four goroutines of etcd's watch service.
// It is the only watch on its etcd stream, because etcd answers a request for progress only when all
// watches of a stream are up to date.
type localStream struct {
	l  *local
	ws mvcc.WatchStream
	// past is what happened before ws joined and has not been told yet.
	past news
}

// mvccEnd translates the word for no end between etcd's API and its storage.
func mvccEnd(end []byte) []byte {
	if len(end) == 1 && end[0] == 0 {
		return []byte{}
	}
	return end
}

func (s *localStream) next(ctx context.Context, wake <-chan struct{}) (news, error) {
	var n news
	if s.past.rev != 0 {
		n, s.past = s.past, news{}
		return n, nil
	}
	select {
	case r, ok := <-s.ws.Chan():
		if err := n.add(r, ok); err != nil {
			return news{}, err
		}
	case <-wake:
		return news{}, nil
	case <-ctx.Done():
		return news{}, ctx.Err()
	}
	// Take along what has piled up meanwhile, so that a slow watcher catches up in few steps.
	for len(n.events) < maxNews {
		select {
		case r, ok := <-s.ws.Chan():
			if err := n.add(r, ok); err != nil {
				return news{}, err
			}
		default:
			return n, nil
		}
	}
	return n, nil
}

// add appends one response. etcd never splits a revision over two of them. The revision of a response with
// events is no promise: it may lie ahead of events that come with the next one.
func (n *news) add(r mvcc.WatchResponse, ok bool) error {
	switch {
	case !ok:
		return unavailable{errClosed}
	case r.CompactRevision != 0:
		return mvcc.ErrCompacted
	case len(r.Events) == 0:
		n.rev = max(n.rev, r.Revision)
		return nil
	}
	mvcc.ReportEventReceived(len(r.Events))
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

func (s *localStream) close() { s.ws.Close() }
