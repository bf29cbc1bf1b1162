package memory

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
)

// marks has a watermark for each prefix that is read: the highest revision of a change with that prefix, or at which a
// caller has read it. A cache that is fed by a watch and has reached the watermark contains everything that any caller
// has seen.
//
// Watermarks are created and raised with the lock of the store held, so they miss no change and are raised before a
// change is acknowledged.
type marks struct {
	mu sync.RWMutex
	// byPrefix is keyed by prefixes that end in a slash.
	byPrefix map[string]*atomic.Int64
}

func raise(mark *atomic.Int64, rev int64) {
	for {
		old := mark.Load()
		if rev <= old || mark.CompareAndSwap(old, rev) {
			return
		}
	}
}

func (m *marks) get(prefix string) *atomic.Int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byPrefix[prefix]
}

// add creates the watermark of a prefix.
func (m *marks) add(prefix string, rev int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byPrefix == nil {
		m.byPrefix = map[string]*atomic.Int64{}
	}
	if m.byPrefix[prefix] == nil {
		m.byPrefix[prefix] = &atomic.Int64{}
	}
	raise(m.byPrefix[prefix], rev)
}

// saw raises the watermarks of every prefix of key.
func (m *marks) saw(key string, rev int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if mark := m.byPrefix[key[:i+1]]; mark != nil {
			raise(mark, rev)
		}
	}
}

// sawAll raises the watermarks of every prefix that has keys in common with prefix.
func (m *marks) sawAll(prefix string, rev int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for p, mark := range m.byPrefix {
		if strings.HasPrefix(p, prefix) || strings.HasPrefix(prefix, p) {
			raise(mark, rev)
		}
	}
}

// Fresh returns the revision that a cache of prefix, which is fed by a watch, has to reach to contain every write that
// was acknowledged before the call. Watermarks exist for whole path elements only; for a prefix that ends within an
// element, the watermark of the elements before it is returned, which is never lower.
func (s *Store) Fresh(ctx context.Context, prefix string) (int64, error) {
	if err := s.read(ctx, "fresh", prefix); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	prefix = prefix[:strings.LastIndexByte(prefix, '/')+1]
	if prefix == "" {
		return s.rev, nil
	}
	if mark := s.marks.get(prefix); mark != nil {
		return mark.Load(), nil
	}
	s.marks.add(prefix, s.rev)
	return s.rev, nil
}
