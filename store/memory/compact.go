package memory

import (
	"context"
	"slices"
	"strconv"
	"time"

	"proa.dev/kv"
)

// compactKey is the key that a store at rest writes to get past the revision it rests at. Its name is that of the key
// through which servers on one etcd agree who compacts.
const compactKey = "compact_rev_key"

// Compact forgets the history before rev. To compact what is compacted already is no error.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	if err := s.write(ctx, "compact", ""); err != nil {
		return err
	}
	defer s.mu.Unlock()
	switch {
	case rev > s.rev:
		return about("compact", "", kv.ErrFuture)
	case rev <= s.compacted:
		return nil
	}
	s.compacted = rev
	// Only a change makes the version before it superfluous, so the changes since the last time lead to all there are.
	for _, c := range s.log[:s.since(rev+1)] {
		s.trim(c.Key)
	}
	s.log = slices.Delete(s.log, 0, s.since(rev))
	for _, w := range s.watches {
		w.forget(rev)
	}
	return nil
}

// trim forgets the versions of a key that nobody may read any more.
func (s *Store) trim(key string) {
	i := s.item(key)
	if i == nil {
		return // forgotten for an earlier change
	}
	n := max(i.find(s.compacted), 0)
	if i.versions[n].gone && i.versions[n].rev <= s.compacted {
		n++
	}
	if n == 0 {
		return
	}
	for _, v := range i.versions[:n] {
		s.size -= int64(len(v.value))
	}
	if n == len(i.versions) {
		s.keys.Delete(i)
		s.size -= int64(len(i.key))
		return
	}
	i.versions = slices.Clone(i.versions[n:])
}

// RunCompaction forgets history that is older than one to two intervals, until ctx ends. A round that fails is left to the
// next.
func (s *Store) RunCompaction(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var r round
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r = s.compactRound(ctx, r)
		}
	}
}

// round is what is known after a round of compaction: the revision then, and that of the last write of our own.
type round struct{ rev, own int64 }

// compactRound compacts at the revision of the last round. The state at its very end is forgotten, too, so that nobody reads
// it for ever in a store that is at rest; for that the store must have moved on, if need be by a write of our own. After
// that it rests: what our own write has left need not be forgotten.
func (s *Store) compactRound(ctx context.Context, last round) round {
	now, err := s.Revision(ctx)
	if err != nil {
		return last
	}
	next := round{now, last.own}
	switch {
	case last.rev == 0, now == last.own:
		return next
	case now == last.rev:
		if now, err = s.moveOn(ctx, last.rev); err != nil {
			return last
		}
		next = round{now, now}
	}
	if err := s.Compact(ctx, last.rev+1); err != nil {
		return last
	}
	return next
}

func (s *Store) moveOn(ctx context.Context, rev int64) (int64, error) {
	p, _, err := s.Get(ctx, compactKey)
	if err != nil {
		return 0, err
	}
	return s.Commit(ctx, kv.Write{Key: compactKey, Value: strconv.AppendInt(nil, rev, 10), Rev: p.Rev})
}
