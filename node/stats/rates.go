package stats

import (
	"sync"
	"time"
)

// rates makes speeds of counters: what was counted since the last time somebody asked.
type rates struct {
	mu   sync.Mutex // guards last
	last map[string]counted
}

// counted is a counter at a time, and the speed that was worked out then.
type counted struct {
	total uint64
	at    time.Time
	speed *uint64
}

// atLeast is the shortest time of which a speed means something.
const atLeast = time.Second

func newRates() *rates { return &rates{last: map[string]counted{}} }

// of is the speed of a counter in its units a second; nil the first time.
func (r *rates) of(key string, total uint64, at time.Time) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, found := r.last[key]
	if !found || total < was.total { // it is new, or has begun anew
		r.last[key] = counted{total: total, at: at}
		return nil
	}
	passed := at.Sub(was.at)
	if passed < atLeast {
		return was.speed
	}
	speed := uint64(float64(total-was.total) / passed.Seconds())
	r.last[key] = counted{total, at, &speed}
	return &speed
}

// keep forgets what is not there any more.
func (r *rates) keep(seen map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.last {
		if !seen[key] {
			delete(r.last, key)
		}
	}
}
