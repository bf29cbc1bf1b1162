package kubeletapi

import (
	"sync"
	"time"
)

// cache is a cache whose entries expire. When it is full, expired entries are dropped, and if there are none, all
// entries.
type cache[K comparable, V any] struct {
	most int
	mu   sync.Mutex // guards all
	all  map[K]cacheEntry[V]
}

type cacheEntry[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, all: map[K]cacheEntry[V]{}}
}

func (m *cache[K, V]) get(key K, now time.Time) (value V, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, found := m.all[key]
	if !found || now.After(r.until) {
		return value, false
	}
	return r.value, true
}

func (m *cache[K, V]) put(key K, value V, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) >= m.most {
		now := time.Now()
		for k, r := range m.all {
			if now.After(r.until) {
				delete(m.all, k)
			}
		}
		if len(m.all) >= m.most {
			clear(m.all)
		}
	}
	m.all[key] = cacheEntry[V]{value, until}
}
