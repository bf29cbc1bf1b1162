package dra

import (
	"slices"
	"sync"
)

// turns lets one at a time work on a claim: two Pods may share it, and a driver that is slow keeps only those waiting who need it.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	sync.Mutex
	wait int // who holds it or waits for it
}

// take waits for claims and returns how to give them back. They are taken in order, so that no two wait for each other.
func (t *turns) take(keys []string) (give func()) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	for _, key := range keys {
		t.mu.Lock()
		if t.held == nil {
			t.held = map[string]*turn{}
		}
		x := t.held[key]
		if x == nil {
			x = &turn{}
			t.held[key] = x
		}
		x.wait++
		t.mu.Unlock()
		x.Lock()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, key := range keys {
			x := t.held[key]
			x.Unlock()
			if x.wait--; x.wait == 0 {
				delete(t.held, key)
			}
		}
	}
}
