package tunnel

import (
	"math/rand/v2"
	"time"
)

// The pauses between attempts to open a tunnel.
const (
	first = 100 * time.Millisecond
	last  = 30 * time.Second
	// steady is how long a tunnel must have been open for its end to count as the first.
	steady = 10 * time.Second
	// twice is the pause where the server has a tunnel already.
	twice = time.Minute
)

// next is the pause after one, before the next attempt.
func next(pause, lived time.Duration, hasOne bool) time.Duration {
	switch {
	case hasOne:
		return twice
	case pause == 0 || lived >= steady || pause == twice:
		return first
	}
	return min(2*pause, last)
}

// jitter keeps the nodes apart that have lost a server at the same moment.
func jitter(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause) //nolint:gosec // chance spreads load here, it keeps no secret
}
