// Package expirycache is a cache of limited size whose entries expire: for answers of authentication and authorization
// webhooks, and for verified tokens.
package expirycache

import (
	"cmp"
	"sync"
	"time"
)

const (
	// DefaultLimit is the number of entries of a cache without a Limit.
	DefaultLimit = 8192
	// maxBytes is the size of all entries of a cache together, and maxEntryBytes that of the largest entry that is kept.
	maxBytes, maxEntryBytes = 64 << 20, 1 << 20
)

// Cache holds values until they expire. The zero value is an empty cache. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	// Limit is the number of entries; 0 means DefaultLimit. Set it before the first use.
	Limit int

	mu      sync.RWMutex // guards what follows
	entries map[K]entry[V]
	bytes   int // of the entries
}

type entry[V any] struct {
	value V
	size  int
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

// Put adds a value that expires at a time. size is how many bytes the key and the value have if others decide about that, and 0 for
// those that are always small. An entry that is too large is not kept.
func (c *Cache[K, V]) Put(key K, value V, size int, until, now time.Time) {
	if size > maxEntryBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(key)
	if c.entries == nil {
		c.entries = map[K]entry[V]{}
	}
	if limit := cmp.Or(c.Limit, DefaultLimit); len(c.entries) >= limit || c.bytes+size > maxBytes {
		c.evict(limit, now)
	}
	c.entries[key] = entry[V]{value, size, until}
	c.bytes += size
}

func (c *Cache[K, V]) remove(key K) {
	c.bytes -= c.entries[key].size
	delete(c.entries, key)
}

// evict removes expired entries, and if that is not enough arbitrary ones, until an eighth of the cache is free. So it
// runs rarely, even when entries are added all the time.
func (c *Cache[K, V]) evict(limit int, now time.Time) {
	for key, e := range c.entries {
		if !now.Before(e.until) {
			c.remove(key)
		}
	}
	for key := range c.entries { // a map is iterated in random order
		if len(c.entries) <= limit-max(1, limit/8) && c.bytes <= maxBytes-maxBytes/8 {
			return
		}
		c.remove(key)
	}
}

// Len returns the number of entries, including expired ones.
func (c *Cache[K, V]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.entries)
}
