package store

import (
	"bytes"
	"context"
	"math"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"proa.dev/internal/wait"
)

const (
	// maxHistory bounds the revisions that a watch reads from the history itself instead of leaving them to etcd.
	maxHistory = 10000
	// joinTries is how often a watch tries to start at the current revision.
	joinTries = 8
)

// open starts a watch. etcd serves watches that start at a past revision only ten times a second. A watch that starts a
// little in the past, such as the watch after a list, therefore starts at the current revision, called joined, and
// reads the changes up to joined from the history of the member. Each change is delivered exactly once: up to joined
// from the history, after it by etcd.
func (l *local) open(ctx context.Context, prefix string, after int64) (stream, error) {
	s := &localStream{l: l, prefix: prefix, changed: wait.NewSignal()}
	s.room = sync.NewCond(&s.mu)
	ws, joined, err := s.join(ctx, after)
	if err != nil {
		return nil, err
	}
	s.ws = ws
	if joined > after {
		if s.queue.events, err = l.history(prefix, after, joined); err != nil {
			s.ws.Close()
			return nil, err
		}
		s.queue.rev = joined
		s.changed.Send()
	}
	s.pumping.Go(func() { s.pump(ctx, joined) })
	return s, nil
}

// join opens the etcd watch for the changes after the returned revision.
func (s *localStream) join(ctx context.Context, after int64) (mvcc.WatchStream, int64, error) {
	for try := 1; ; try++ {
		now := s.l.server.KV().Rev()
		joined := max(after, now)
		if now-after > maxHistory {
			joined = after
		}
		ws := s.l.server.KV().NewWatchStream()
		if _, err := ws.Watch(ctx, 0, firstKey(s.prefix), mvccEnd(endOf(s.prefix)), joined+1); err != nil {
			ws.Close()
			return nil, 0, err
		}
		// If the revision is still the same, etcd has accepted the watch as one at the current revision.
		if try == joinTries || joined == after || s.l.server.KV().Rev() == now {
			return ws, joined, nil
		}
		ws.Close()
	}
}

// rejoin replaces an etcd watch that is late by one at the current revision, and queues the changes after a revision from
// the history. It returns the new watch and the revision that it has been joined at; nil if the stream has ended.
func (s *localStream) rejoin(ctx context.Context, after int64) (mvcc.WatchStream, int64) {
	for now := s.l.server.KV().Rev(); now-after > maxHistory; now = s.l.server.KV().Rev() {
		events, err := s.l.history(s.prefix, after, after+maxHistory)
		if after += maxHistory; !s.push(eventBatch{events, after}, err) {
			return nil, 0
		}
	}
	ws, joined, err := s.join(ctx, after)
	if err != nil {
		s.push(eventBatch{}, err)
		return nil, 0
	}
	if !s.replace(ws) {
		return nil, 0
	}
	events, err := s.l.history(s.prefix, after, joined)
	if !s.push(eventBatch{events, joined}, err) {
		return nil, 0
	}
	return ws, joined
}

// replace ends the present etcd watch in favour of another one, which it ends if the stream is closed.
func (s *localStream) replace(ws mvcc.WatchStream) bool {
	s.mu.Lock()
	old, closed := s.ws, s.closed
	if closed {
		old = ws
	} else {
		s.ws = ws
	}
	s.mu.Unlock()
	old.Close()
	return !closed
}

// history returns the changes with the prefix in the revisions (after, until].
func (l *local) history(prefix string, after, until int64) ([]*mvccpb.Event, error) {
	from := mvcc.RevToBytes(mvcc.Revision{Main: after + 1}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: until + 1}, mvcc.NewRevBytes())
	events, err := l.scan(prefix, from, to)
	if err != nil {
		return nil, err
	}
	// A compaction raises FirstRev before it deletes anything, so if FirstRev is still low, nothing was deleted during
	// the scan.
	if first := l.server.KV().FirstRev(); after+1 < first {
		return nil, mvcc.ErrCompacted
	}
	return events, nil
}

func (l *local) scan(prefix string, from, to []byte) ([]*mvccpb.Event, error) {
	var events []*mvccpb.Event
	tx := l.server.Backend().ReadTx()
	// The returned slices are memory of the database and valid only while its lock is held.
	tx.RLock()
	defer tx.RUnlock()
	revs, values := tx.UnsafeRange(schema.Key, from, to, math.MaxInt64)
	for i, v := range values {
		if key, ok := keyOf(v); ok && !bytes.HasPrefix(key, []byte(prefix)) {
			continue // most changes are of other resources, and their values need not be copied
		}
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

// keyOf returns the key of an encoded pair; ok is false if it does not stand at the beginning, where etcd writes it.
func keyOf(pair []byte) (key []byte, ok bool) {
	field, kind, n := protowire.ConsumeTag(pair)
	if n < 0 || field != 1 || kind != protowire.BytesType {
		return nil, false
	}
	key, n = protowire.ConsumeBytes(pair[n:])
	return key, n >= 0
}
