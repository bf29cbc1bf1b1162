package pod

import "time"

// The back-off of a container that keeps ending: how long it waits before it is restarted.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
)

// backoffs holds the restart back-off of each container. The first restart does not wait; each further one waits twice
// as long as the one before, until the container has run for ten minutes without ending.
type backoffs map[string]backoff

type backoff struct {
	wait time.Duration
	at   time.Time // when it was set
}

// remaining returns how long a container that has ended must still wait, and the whole length of its back-off.
func (b backoffs) remaining(name string, ended, now time.Time) (left, whole time.Duration) {
	e, found := b[name]
	if !found || ended.Sub(e.at) > 2*maxBackoff {
		return 0, 0
	}
	return max(0, e.wait-now.Sub(ended)), e.wait
}

// advance lengthens the back-off of a container that is being restarted.
func (b backoffs) advance(name string, ended, now time.Time) {
	e, found := b[name]
	if !found || ended.Sub(e.at) > 2*maxBackoff {
		b[name] = backoff{firstBackoff, now}
		return
	}
	b[name] = backoff{min(2*e.wait, maxBackoff), now}
}
