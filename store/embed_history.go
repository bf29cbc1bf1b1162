package store

import (
	"context"
	"math"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

const (
	// maxHistory bounds the revisions that a watch reads from history by itself.
	maxHistory = 10000
	// joinTries is how often a watch tries to join the present.
	joinTries = 8
)

// open starts a watch. etcd looks after watches that start in the past only ten times a second, so a watch
// that starts a little behind, as the watch after a list does when somebody writes meanwhile, joins in the
// present and reads what it has missed from the member's history. Whether it joins in time or not, it is told
// every change exactly once: the past up to joined here, everything after it by etcd.
func (l *local) open(ctx context.Context, prefix string, after int64) (stream, error) {
	s := &localStream{l: l, more: make(chan struct{}, 1)}
	s.room = sync.NewCond(&s.mu)
	joined, err := s.join(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	if joined > after {
		if s.queue.events, err = l.history(prefix, after, joined); err != nil {
			s.ws.Close()
			return nil, err
		}
		s.queue.rev = joined
		s.more <- struct{}{}
	}
	s.pumping.Go(s.pump)
	return s, nil
}

// join opens the etcd watch for what comes after the returned revision.
func (s *localStream) join(ctx context.Context, prefix string, after int64) (int64, error) {
	for try := 1; ; try++ {
		now := s.l.server.KV().Rev()
		joined := max(after, now)
		if now-after > maxHistory {
			joined = after
		}
		s.ws = s.l.server.KV().NewWatchStream()
		if _, err := s.ws.Watch(ctx, 0, firstKey(prefix), mvccEnd(endOf(prefix)), joined+1); err != nil {
			s.ws.Close()
			return 0, err
		}
		// When the revision is still the same, etcd has taken the watch as one of the present.
		if try == joinTries || joined == after || s.l.server.KV().Rev() == now {
			return joined, nil
		}
		s.ws.Close()
	}
}

// history returns the changes with the prefix in the revisions (after, until].
func (l *local) history(prefix string, after, until int64) ([]*mvccpb.Event, error) {
	from := mvcc.RevToBytes(mvcc.Revision{Main: after + 1}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: until + 1}, mvcc.NewRevBytes())
	events, err := l.scan(prefix, from, to)
	if err != nil {
		return nil, err
	}
	// Compaction first raises the mark and then deletes, so a mark that is low now was low throughout.
	if first := l.server.KV().FirstRev(); after+1 < first {
		return nil, mvcc.ErrCompacted
	}
	return events, nil
}

func (l *local) scan(prefix string, from, to []byte) ([]*mvccpb.Event, error) {
	var events []*mvccpb.Event
	tx := l.server.Backend().ReadTx()
	// What the transaction returns is memory of the database, valid only under its lock.
	tx.RLock()
	defer tx.RUnlock()
	revs, values := tx.UnsafeRange(schema.Key, from, to, math.MaxInt64)
	for i, v := range values {
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(v, kv); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(kv.Key), prefix) {
			continue
		}
		ev := &mvccpb.Event{Kv: kv}
		if mvcc.IsTombstone(revs[i]) {
			ev.Type = mvccpb.Event_DELETE
			kv.ModRevision = mvcc.BytesToRev(revs[i]).Main
		}
		events = append(events, ev)
	}
	return events, nil
}
