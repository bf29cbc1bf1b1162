package tunnel

import (
	"time"

	"proa.dev/internal/wait"
)

// The back-off of attempts to open a tunnel.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// steady is how long a tunnel must have been open for the back-off to begin anew.
	steady = 10 * time.Second
	// duplicatePause is the pause if the server has a tunnel already.
	duplicatePause = time.Minute
)

// next returns the pause before the next attempt.
func next(pause, lived time.Duration, hasOne bool) time.Duration {
	switch {
	case hasOne:
		return duplicatePause
	case pause == 0 || lived >= steady || pause == duplicatePause:
		return firstBackoff
	}
	return min(2*pause, maxBackoff)
}

// jitter spreads the attempts of nodes that have lost a server at the same moment.
func jitter(pause time.Duration) time.Duration {
	return pause/2 + wait.Jitter(pause)
}
