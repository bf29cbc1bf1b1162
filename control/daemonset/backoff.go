package daemonset

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

const (
	firstDelay = time.Second
	lastDelay  = 15 * time.Minute
)

// backoff remembers how long to wait until another failed Pod of a node is removed. It is a memory of the process: after
// a start all begins anew, and nothing worse comes of that than one try too many.
type backoff struct {
	mu    sync.Mutex // guards what follows
	delay map[string]delay
	swept time.Time
}

type delay struct {
	since time.Time
	wait  time.Duration
}

func newBackoff() *backoff { return &backoff{delay: map[string]delay{}} }

// backoffKey begins anew with every change of a set.
func backoffKey(ds *appsv1.DaemonSet, node string) string {
	return fmt.Sprintf("%s/%d/%s", ds.UID, ds.Status.ObservedGeneration, node)
}

// left is how long there is still to wait.
func (b *backoff) left(key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, found := b.delay[key]
	if !found {
		return 0
	}
	return max(0, d.wait-now.Sub(d.since))
}

// next begins a wait that is twice as long as the last, unless that is long past.
func (b *backoff) next(key string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.swept) > time.Minute {
		for k, d := range b.delay {
			if now.Sub(d.since) > 2*lastDelay {
				delete(b.delay, k)
			}
		}
		b.swept = now
	}
	wait := firstDelay
	if d, found := b.delay[key]; found && now.Sub(d.since) <= 2*lastDelay {
		wait = min(2*d.wait, lastDelay)
	}
	b.delay[key] = delay{now, wait}
}
