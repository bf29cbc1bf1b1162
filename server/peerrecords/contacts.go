package peerrecords

import (
	"slices"
	"sync"
	"time"
)

const (
	// pause is for how long a server is not asked again that has never answered.
	pause = 5 * time.Second
	// maxContacts is how many servers are remembered.
	maxContacts = 256
)

// contacts remembers which servers have answered. Whoever may write Leases in kube-system may name servers that do not exist: these must
// neither take the place of those that do, nor make every trace wait for them. The zero value is ready to use.
type contacts struct {
	mu       sync.Mutex // guards what follows
	answered map[identity]time.Time
	failed   map[identity]time.Time // of servers that have never answered
}

// note remembers whether a server has answered at a time.
func (c *contacts) note(o peer, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered == nil {
		c.answered, c.failed = map[identity]time.Time{}, map[identity]time.Time{}
	}
	_, hasAnswered := c.answered[o.identity]
	switch {
	case err == nil:
		delete(c.failed, o.identity)
		remember(c.answered, o.identity, now)
	case !hasAnswered:
		remember(c.failed, o.identity, now)
	}
}

// remember adds a server; the one that was noted first makes room.
func remember(in map[identity]time.Time, o identity, now time.Time) {
	if _, known := in[o]; !known && len(in) >= maxContacts {
		var oldest identity
		for other, at := range in {
			if oldest == (identity{}) || at.Before(in[oldest]) {
				oldest = other
			}
		}
		delete(in, oldest)
	}
	in[o] = now
}

// isPausing reports whether a server that has never answered did not answer a short while ago.
func (c *contacts) isPausing(o peer, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, hasFailed := c.failed[o.identity]
	return hasFailed && now.Sub(at).Abs() < pause
}

// sortKnownFirst sorts servers, so that those which have answered before come first, and otherwise stay in their order.
func (c *contacts) sortKnownFirst(servers []peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rank := func(o peer) int {
		if _, known := c.answered[o.identity]; known {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(servers, func(a, b peer) int { return rank(a) - rank(b) })
}
