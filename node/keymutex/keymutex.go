// Package keymutex provides a mutex for each key of a set that is not known beforehand, such as the volumes or claims of a
// node. Keys that nobody holds take no memory.
package keymutex

import (
	"slices"
	"sync"
)

// Mutex locks keys. The zero value has no key locked.
type Mutex struct {
	mu   sync.Mutex // guards held and the users in it
	held map[string]*entry
}

type entry struct {
	sync.Mutex
	users int // goroutines that hold the key or wait for it
}

// Lock locks keys, and returns how to unlock them. Several keys are locked in order, so that no two callers wait for each
// other.
func (m *Mutex) Lock(keys ...string) (unlock func()) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys {
		m.mu.Lock()
		if m.held == nil {
			m.held = map[string]*entry{}
		}
		e := m.held[key]
		if e == nil {
			e = &entry{}
			m.held[key] = e
		}
		e.users++
		m.mu.Unlock()
		e.Lock()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, key := range keys {
			e := m.held[key]
			e.Unlock()
			if e.users--; e.users == 0 {
				delete(m.held, key)
			}
		}
	}
}

// Users returns how many goroutines hold a key or wait for it.
func (m *Mutex) Users(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.held[key]; e != nil {
		return e.users
	}
	return 0
}
