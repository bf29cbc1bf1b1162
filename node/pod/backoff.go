package pod

import "time"

// How long a container that ends again and again waits before it runs again.
const (
	firstBackoff = 10 * time.Second
	mostBackoff  = 5 * time.Minute
)

// backoffs remembers, by container, how long the next restart must wait. The first restart waits not at all; each further one
// twice as long as the one before, until the container has run for ten minutes without ending.
type backoffs map[string]backoff

type backoff struct {
	wait time.Duration
	at   time.Time // when it was set
}

// left is how long a container that ended must still wait, and what its whole wait is.
func (b backoffs) left(name string, ended, now time.Time) (left, whole time.Duration) {
	e, found := b[name]
	if !found || ended.Sub(e.at) > 2*mostBackoff {
		return 0, 0
	}
	return max(0, e.wait-now.Sub(ended)), e.wait
}

// next is called when a container that had ended is started again.
func (b backoffs) next(name string, ended, now time.Time) {
	e, found := b[name]
	if !found || ended.Sub(e.at) > 2*mostBackoff {
		b[name] = backoff{firstBackoff, now}
		return
	}
	b[name] = backoff{min(2*e.wait, mostBackoff), now}
}
