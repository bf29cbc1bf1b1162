package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proa.dev/kv"
)

// The limits of a transaction are etcd's defaults.
const (
	// maxWrites bounds the writes of one transaction.
	maxWrites = 128
	// maxBytes bounds the size of one transaction.
	maxBytes = 3 << 19
	// overhead is the size that a write adds to a transaction of etcd besides its value and its key, which occurs three
	// times.
	overhead = 32
	// maxTTL is the longest TTL of a key, in seconds.
	maxTTL = 9_000_000_000
)

// Commit makes all writes at one revision, or none. If a condition does not hold, the error is a *kv.Conflict with the
// current pair. A transaction that only checks conditions returns the revision at which they held.
func (s *Store) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	if len(writes) == 0 {
		return s.Revision(ctx)
	}
	first := writes[0].Key
	if err := s.write(ctx, "commit", first); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if err := check(writes); err != nil {
		return 0, withOperation("commit", first, err)
	}
	var few [4]*item // avoids an allocation for small transactions
	items := few[:0]
	for n := range writes {
		i := s.item(writes[n].Key)
		now := i.now()
		if now.Rev != writes[n].Rev {
			if now.Rev == 0 {
				s.marks.saw(writes[n].Key, s.rev)
			}
			return 0, &kv.Conflict{Key: writes[n].Key, Now: now}
		}
		items = append(items, i)
	}
	rev, from := s.rev+1, len(s.log)
	for n := range writes {
		s.apply(&writes[n], items[n], rev)
	}
	if s.notifyWatches(from) {
		s.rev = rev
		s.setTimer()
	}
	for n := range writes {
		if w := &writes[n]; !w.Keep && changesNothing(w) {
			s.marks.saw(w.Key, s.rev) // the caller now knows that the key does not exist
		}
	}
	return s.rev, nil
}

// changesNothing reports whether a write changes nothing: it only checks a condition, or deletes a key that must not
// exist.
func changesNothing(w *kv.Write) bool { return w.Keep || w.Value == nil && w.Rev == 0 }

// check returns an error for transactions that etcd refuses regardless of the stored data.
func check(writes []kv.Write) error {
	if len(writes) > maxWrites {
		return fmt.Errorf("%w: %d writes, at most %d", kv.ErrTooLarge, len(writes), maxWrites)
	}
	size := 0
	for n := range writes {
		w := &writes[n]
		size += overhead + 3*len(w.Key)
		if w.Key == "" {
			return errors.New("a write has no key")
		}
		if changesNothing(w) {
			continue
		}
		size += len(w.Value)
		if w.Value != nil && w.TTL > maxTTL {
			return fmt.Errorf("%s cannot live for %d seconds, at most %d", w.Key, w.TTL, maxTTL)
		}
		for m := range n {
			o := &writes[m]
			if o.Key == w.Key && !changesNothing(o) && (o.Value != nil || w.Value != nil) {
				return fmt.Errorf("%s is written twice", w.Key)
			}
		}
	}
	if size > maxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", kv.ErrTooLarge, size, maxBytes)
	}
	return nil
}

// apply makes one write, whose condition holds, at a revision. i is the item of its key; nil if there is none.
func (s *Store) apply(w *kv.Write, i *item, rev int64) {
	if changesNothing(w) {
		return
	}
	if w.Value == nil {
		s.remove(i, rev)
		return
	}
	if i == nil {
		i = &item{key: w.Key}
		s.keys.ReplaceOrInsert(i)
		s.size += int64(len(w.Key))
	}
	// The copy has no spare capacity, so that callers who append to it do not share memory.
	value := make([]byte, len(w.Value))
	copy(value, w.Value)
	var until time.Time
	if w.TTL > 0 {
		until = time.Now().Add(time.Duration(w.TTL) * time.Second)
	}
	s.put(i, version{rev: rev, value: value}, until)
}

// remove deletes a key at a revision, if it exists.
func (s *Store) remove(i *item, rev int64) {
	if i.now().Rev != 0 {
		s.put(i, version{rev: rev, gone: true}, time.Time{})
	}
}

// put makes v the current version of an item that expires at until, and appends the change to the log.
func (s *Store) put(i *item, v version, until time.Time) {
	c := kv.Change{Pair: kv.Pair{Key: i.key, Value: v.value, Rev: v.rev}, Prev: i.now(), Delete: v.gone}
	i.versions = append(i.versions, v)
	s.size += int64(len(v.value))
	s.log = append(s.log, c)
	s.marks.saw(i.key, v.rev)
	s.expire(i, until)
}

// notifyWatches queues the changes of the log from an index on for the watches, and reports whether there are any.
func (s *Store) notifyWatches(from int) bool {
	changes := s.log[from:]
	for _, w := range s.watches {
		w.add(changes)
	}
	return len(changes) > 0
}
