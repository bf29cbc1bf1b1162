package serve

import (
	"sync"
	"time"
)

// memory remembers answers for a while. When it is full, all that has expired goes, and if that is nothing, everything.
type memory[K comparable, V any] struct {
	most int
	mu   sync.Mutex // guards all
	all  map[K]remembered[V]
}

type remembered[V any] struct {
	value V
	until time.Time
}

func newMemory[K comparable, V any](most int) *memory[K, V] {
	return &memory[K, V]{most: most, all: map[K]remembered[V]{}}
}

func (m *memory[K, V]) get(key K, now time.Time) (value V, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, found := m.all[key]
	if !found || now.After(r.until) {
		return value, false
	}
	return r.value, true
}

func (m *memory[K, V]) put(key K, value V, until time.Time) {
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
	m.all[key] = remembered[V]{value, until}
}
