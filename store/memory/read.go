package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"proa.dev/kv"
)

// item is a key with its history.
type item struct {
	key string
	// versions are sorted by revision and never empty.
	versions []version
	// until is when the key expires; zero for never.
	until time.Time
}

// version is the state of a key from a revision on.
type version struct {
	rev   int64
	value []byte
	// gone reports that the key did not exist.
	gone bool
}

// now returns the current pair of the item; it is zero if the key does not exist. The item may be nil.
func (i *item) now() kv.Pair {
	if i == nil {
		return kv.Pair{}
	}
	return i.pair(len(i.versions) - 1)
}

// at returns the pair of the item at a revision; it is zero if the key did not exist.
func (i *item) at(rev int64) kv.Pair {
	if last := len(i.versions) - 1; i.versions[last].rev <= rev {
		return i.pair(last)
	}
	return i.pair(i.find(rev))
}

// find returns the index of the version that was current at a revision; -1 if there was none.
func (i *item) find(rev int64) int {
	n, _ := slices.BinarySearchFunc(i.versions, rev+1, func(v version, rev int64) int { return cmp.Compare(v.rev, rev) })
	return n - 1
}

func (i *item) pair(n int) kv.Pair {
	if n < 0 || i.versions[n].gone {
		return kv.Pair{}
	}
	return kv.Pair{Key: i.key, Value: i.versions[n].value, Rev: i.versions[n].rev}
}

// item returns the item of a key; nil if there is none. The caller holds the lock.
func (s *Store) item(key string) *item {
	i, _ := s.keys.Get(&item{key: key})
	return i
}

// Get returns the current pair of a key, and whether it exists.
func (s *Store) Get(ctx context.Context, key string) (kv.Pair, bool, error) {
	if err := s.read(ctx, "get", key); err != nil {
		return kv.Pair{}, false, err
	}
	defer s.mu.RUnlock()
	p := s.item(key).now()
	if p.Rev == 0 {
		s.marks.saw(key, s.rev)
	}
	return p, p.Rev != 0, nil
}

// List returns the pairs of a range in the order of their keys.
func (s *Store) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	if err := s.read(ctx, "list", r.Prefix); err != nil {
		return kv.Page{}, err
	}
	defer s.mu.RUnlock()
	rev := s.rev
	if r.Rev > 0 {
		rev = r.Rev
	}
	switch {
	case rev > s.rev:
		return kv.Page{}, withOperation("list", r.Prefix, kv.ErrFuture)
	case rev < s.compacted:
		return kv.Page{}, withOperation("list", r.Prefix, kv.ErrCompacted)
	}
	page := kv.Page{Pairs: []kv.Pair{}, Rev: rev}
	s.keys.AscendGreaterOrEqual(&item{key: max(r.From, r.Prefix)}, func(i *item) bool {
		if !strings.HasPrefix(i.key, r.Prefix) {
			return false
		}
		if p := i.at(rev); p.Rev != 0 {
			page.Total++
			if r.Limit <= 0 || page.Total <= r.Limit {
				page.Pairs = append(page.Pairs, p)
			}
		}
		return true
	})
	s.marks.sawAll(r.Prefix, rev)
	return page, nil
}
