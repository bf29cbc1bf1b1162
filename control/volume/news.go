package volume

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
)

// remind is after what time people are told again what a claim waits for: Events are not kept for ever.
const remind = 15 * time.Minute

// news remembers what was said last of each claim, so that nobody is told the same at every look.
type news struct {
	mu   sync.Mutex // guards what follows
	last map[control.Key]told
}

type told struct {
	uid types.UID
	event
	at time.Time
}

// filter takes from a plan what was said before, and returns when it is time to say it again.
func (n *news) filter(k control.Key, uid types.UID, p *claimPlan, now time.Time) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p.events) == 0 {
		delete(n.last, k)
		return 0
	}
	say := told{uid, p.events[0], now}
	if was, ok := n.last[k]; ok && was.uid == uid && was.event == say.event && now.Sub(was.at) < remind {
		p.events = nil
		return remind - now.Sub(was.at)
	}
	if n.last == nil {
		n.last = map[control.Key]told{}
	}
	n.last[k] = say
	return remind
}

func (n *news) forget(k control.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.last, k)
}
