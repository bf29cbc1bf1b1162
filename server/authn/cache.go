package authn

import (
	"crypto/sha256"
	"sync"
	"time"
)

// The bounds of the token cache. A token stays for maxTokenAge or until it expires; its expiry is
// checked again at every use, so the age only bounds memory.
const (
	maxTokens   = 16384
	maxTokenAge = 10 * time.Minute
)

// tokenCache remembers tokens whose signature was verified, by their hash: whoever reads the memory of
// the cache learns no token. The zero value is empty and ready.
type tokenCache struct {
	mu sync.RWMutex // mu guards m
	m  map[[sha256.Size]byte]*tokenRecord
}

func (c *tokenCache) get(key [sha256.Size]byte, now time.Time) *tokenRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if rec := c.m[key]; rec != nil && now.Before(rec.until) {
		return rec
	}
	return nil
}

func (c *tokenCache) put(key [sha256.Size]byte, rec *tokenRecord, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[[sha256.Size]byte]*tokenRecord{}
	}
	if len(c.m) >= maxTokens {
		c.evict(now)
	}
	c.m[key] = rec
}

// evict makes room: what is over first, then an arbitrary eighth, since a map is walked in no
// particular order. It runs once for some two thousand new tokens.
func (c *tokenCache) evict(now time.Time) {
	for key, rec := range c.m {
		if !now.Before(rec.until) {
			delete(c.m, key)
		}
	}
	for key := range c.m {
		if len(c.m) <= maxTokens-maxTokens/8 {
			return
		}
		delete(c.m, key)
	}
}
