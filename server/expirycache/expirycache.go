// Package expirycache is a cache of limited size whose entries expire: for answers of authentication and authorization
// webhooks, and for verified tokens.
package expirycache

import (
	"cmp"
	"sync"
	"time"
)

// DefaultLimit is the number of entries of a cache without a Limit.
const DefaultLimit = 8192

// Cache holds values until they expire. The zero value is an empty cache. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	// Limit is the number of entries; 0 means DefaultLimit. Set it before the first use.
	Limit int

	mu      sync.RWMutex // guards entries
	entries map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

// Get returns the value of a key, unless it has expired.
func (c *Cache[K, V]) Get(key K, now time.Time) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e, ok := c.entries[key]
	if !ok || !now.Before(e.until) {
		return value, false
	}
	return e.value, true
}

// Put adds a value that expires at a time.
func (c *Cache[K, V]) Put(key K, value V, until, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[K]entry[V]{}
	}
	if limit := cmp.Or(c.Limit, DefaultLimit); len(c.entries) >= limit {
		c.evict(limit, now)
	}
	c.entries[key] = entry[V]{value, until}
}

// evict removes expired entries, and if that is not enough arbitrary ones, until an eighth of the cache is free. So it
// runs rarely, even when entries are added all the time.
func (c *Cache[K, V]) evict(limit int, now time.Time) {
	for key, e := range c.entries {
		if !now.Before(e.until) {
			delete(c.entries, key)
		}
	}
	for key := range c.entries { // a map is iterated in random order
		if len(c.entries) <= limit-max(1, limit/8) {
			return
		}
		delete(c.entries, key)
	}
}

// Len returns the number of entries, including expired ones.
func (c *Cache[K, V]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}
