package stats

import (
	"sync"
	"time"

	"proa.dev/node/cgroup"
)

// rates computes rates from counters: the increase since the last request.
type rates struct {
	mu   sync.Mutex // guards last
	last map[string]sample
}

// sample is the value of a counter at a time, and the rate that was computed then.
type sample struct {
	total uint64
	at    time.Time
	speed *uint64
}

// minPeriod is the shortest period of a meaningful rate.
const minPeriod = time.Second

func newRates() *rates { return &rates{last: map[string]sample{}} }

// of returns the rate of a counter per second; nil the first time.
func (r *rates) of(key string, total uint64, at time.Time) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, found := r.last[key]
	if !found || total < was.total { // it is new, or has been reset
		r.last[key] = sample{total: total, at: at}
		return nil
	}
	passed := at.Sub(was.at)
	if passed < minPeriod {
		return was.speed
	}
	speed := uint64(float64(total-was.total) / passed.Seconds())
	r.last[key] = sample{total, at, &speed}
	return &speed
}

// dropOthers drops the counters that no longer exist.
func (r *rates) dropOthers(seen map[string]*cgroup.Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.last {
		if _, found := seen[key]; !found {
			delete(r.last, key)
		}
	}
}
