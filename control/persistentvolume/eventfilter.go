package persistentvolume

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
)

// repeatAfter is the interval at which an unchanged Event about a claim is recorded again, because Events expire.
const repeatAfter = 15 * time.Minute

// eventFilter remembers the last Event about each claim, so that it is not recorded at every reconcile.
type eventFilter struct {
	mu   sync.Mutex // guards what follows
	last map[control.Key]lastEvent
}

type lastEvent struct {
	uid types.UID
	event
	at time.Time
}

// filter removes the Event from a plan if it was recorded before, and returns the time until it is to be recorded again.
func (n *eventFilter) filter(k control.Key, uid types.UID, p *claimPlan, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p.events) == 0 {
		delete(n.last, k)
		return 0
	}
	next := lastEvent{uid, p.events[0], now}
	if was, ok := n.last[k]; ok && was.uid == uid && was.event == next.event && now.Sub(was.at) < repeatAfter {
		p.events = nil
		return repeatAfter - now.Sub(was.at)
	}
	if n.last == nil {
		n.last = map[control.Key]lastEvent{}
	}
	n.last[k] = next
	return repeatAfter
}

func (n *eventFilter) forget(k control.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, k)
}
