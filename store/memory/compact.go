package memory

import (
	"context"
	"slices"
	"strconv"
	"time"

	"proa.dev/kv"
)

// compactKey is the key that an idle store writes so that its current revision can be compacted. Servers that share an
// etcd use the same key to agree on who compacts.
const compactKey = "compact_rev_key"

// Compact removes the history before rev. Compacting a revision that is compacted already is no error.
func (s *Store) Compact(ctx context.Context, rev int64) error {
	if err := s.write(ctx, "compact", ""); err != nil {
		return err
	}
	defer s.mu.Unlock()
	switch {
	case rev > s.rev:
		return withOperation("compact", "", kv.ErrFuture)
	case rev <= s.compacted:
		return nil
	}
	s.compacted = rev
	// A version becomes superfluous only by a later change of its key, so only the keys in the log have to be trimmed.
	for _, c := range s.log[:s.since(rev+1)] {
		s.trim(c.Key)
	}
	s.log = slices.Delete(s.log, 0, s.since(rev))
	for _, w := range s.watches {
		w.forget(rev)
	}
	return nil
}

// trim removes the versions of a key that can no longer be read.
func (s *Store) trim(key string) {
	i := s.item(key)
	if i == nil {
		return // removed because of an earlier change
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

// RunCompaction compacts history that is older than one to two intervals, until ctx ends. What a failed round has not
// compacted is left to the next.
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

// round is the state after a round of compaction: the revision at that time, and the revision of the last write of
// compactKey.
type round struct{ rev, own int64 }

// compactRound compacts everything up to and including the revision of the last round, so that old revisions cannot be
// read for ever from an idle store. The current revision cannot be compacted, so if nothing was written since,
// compactKey is written first. After that, an idle store is left alone.
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
