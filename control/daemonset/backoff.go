package daemonset

import (
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"proa.dev/control/lib/workload"
)

const (
	firstDelay = time.Second
	lastDelay  = 15 * time.Minute
)

// backoff remembers for each node how long to wait until the next failed Pod is deleted. It is kept in memory only: after a
// restart of the process the delays begin anew, which costs one attempt more.
type backoff struct {
	mu        sync.Mutex // guards what follows
	delay     map[string]delay
	lastSweep time.Time
}

// delay is when the last failed Pod of a node was deleted, and how many were in a row.
type delay struct {
	since    time.Time
	failures int
}

func newBackoff() *backoff { return &backoff{delay: map[string]delay{}} }

// backoffKey returns the key of a node in backoff. It contains the observed generation, so that a change of the set resets
// the delays.
func backoffKey(ds *appsv1.DaemonSet, node string) string {
	return fmt.Sprintf("%s/%d/%s", ds.UID, ds.Status.ObservedGeneration, node)
}

// left returns how long the next deletion must still wait.
func (b *backoff) left(key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, found := b.delay[key]
	if !found {
		return 0
	}
	return max(0, workload.BackoffDelay(firstDelay, lastDelay, d.failures)-now.Sub(d.since))
}

// next starts a delay that is twice as long as the last one, unless that ended long ago.
func (b *backoff) next(key string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.lastSweep) > time.Minute {
		for k, d := range b.delay {
			if now.Sub(d.since) > 2*lastDelay {
				delete(b.delay, k)
			}
		}
		b.lastSweep = now
	}
	failures := 1
	if d, found := b.delay[key]; found && now.Sub(d.since) <= 2*lastDelay {
		failures = d.failures + 1
	}
	b.delay[key] = delay{now, failures}
}
