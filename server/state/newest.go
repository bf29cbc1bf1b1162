package state

import (
	"context"
	"errors"
	"time"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/watch"
)

// CacheTimeout is how long a read of the newest state waits for the cache, before the store answers in its place.
const CacheTimeout = 500 * time.Millisecond

// Newest returns the newest state of an object, and whether it exists: from the cache, or from the store if the cache is too
// far behind.
func (s *State) Newest(ctx context.Context, def *kind.Def, key string) (*watch.Entry, bool, error) {
	err := s.Cache(def).FreshWithin(ctx, CacheTimeout)
	if late, ok := errors.AsType[*watch.TooNew](err); ok {
		return s.Stored(ctx, def, key, late)
	}
	if err != nil {
		return nil, false, apistatus.FromStore(err)
	}
	return s.Present(ctx, def, key)
}

// Present returns an object as the cache has it at the moment.
func (s *State) Present(ctx context.Context, def *kind.Def, key string) (*watch.Entry, bool, error) {
	cache := s.Cache(def)
	if err := s.RetryConversion(ctx, def, cache, key); err != nil {
		return nil, false, err
	}
	return LookUp(cache, key)
}

// Stored reads an object from the store, because its cache is too late. The error is that of the cache if the store has not
// reached the wanted revision either.
func (s *State) Stored(ctx context.Context, def *kind.Def, key string, late *watch.TooNew) (*watch.Entry, bool, error) {
	page, err := s.Store.List(ctx, kv.Range{Prefix: key, Limit: 1, Uncounted: true})
	switch {
	case err != nil:
		return nil, false, apistatus.FromStore(err)
	case page.Rev < late.Asked:
		return nil, false, apistatus.TooLargeVersion(late)
	case len(page.Pairs) == 0 || page.Pairs[0].Key != key:
		return nil, false, nil
	}
	e, err := s.Entry(def, page.Pairs[0])
	return e, err == nil, apistatus.FromStore(err)
}

// listStored reads all objects with a prefix from the store.
func (s *State) listStored(ctx context.Context, def *kind.Def, prefix string) (out []*watch.Entry, err error) {
	r := kv.Range{Prefix: prefix, Limit: 500, Uncounted: true}
	for {
		page, err := s.Store.List(ctx, r)
		if err != nil {
			return nil, apistatus.FromStore(err)
		}
		for i, l := range s.Codec.LoadAll(ctx, def, page.Pairs) {
			if l.Err != nil {
				return nil, apistatus.FromStore(l.Err)
			}
			p := &page.Pairs[i]
			out = append(out, watch.NewEntry(p.Key, l.Object, p.Rev))
			r.From = p.Key + "\x00"
		}
		if r.Rev = page.Rev; int64(len(page.Pairs)) < r.Limit {
			return out, nil
		}
	}
}

// CacheLags returns how many seconds the cache of each resource is behind the writes of this process, for those that have
// been used.
func (s *State) CacheLags() map[string]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]float64{}
	for _, def := range s.defs.Load().stored {
		if c := s.caches[cacheName(def)]; c != nil {
			out[def.Resource().String()] = c.Lag().Seconds()
		}
	}
	return out
}
