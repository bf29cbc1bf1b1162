package schedule

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Record is a decision that was made, with what is needed to make it again.
type Record struct {
	Pod      *PodInfo
	Profile  *Profile
	Decision Decision
	At       time.Time
	Attempt  int

	snapshot *Snapshot
}

// Explain makes the decision again, with the verdict or the scores of every node that was looked at. Objects other than pods
// and nodes are as they are now.
func (r Record) Explain() Decision {
	d := Explain(r.snapshot, r.Pod, r.Profile, r.Decision.Seed)
	d.Rescue, d.parts = r.Decision.Rescue, nil
	return d
}

// Recent keeps the latest decisions in bounded memory, one for each pod.
type Recent struct {
	mu   sync.Mutex // guards what follows
	ring []Record
	next int
	at   map[types.UID]int
}

// keptDecisions is how many are kept. A snapshot shares nearly all with its neighbours, so a decision costs little.
const keptDecisions = 2048

// NewRecent returns an empty one.
func NewRecent() *Recent { return &Recent{at: map[types.UID]int{}} }

func (r *Recent) add(rec Record) {
	rec.Decision.Verdicts, rec.Decision.parts = nil, nil
	uid := rec.Pod.Pod.UID
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, has := r.at[uid]; has {
		r.ring[i] = rec
		return
	}
	if len(r.ring) < keptDecisions {
		r.at[uid] = len(r.ring)
		r.ring = append(r.ring, rec)
		return
	}
	delete(r.at, r.ring[r.next].Pod.Pod.UID)
	r.ring[r.next], r.at[uid] = rec, r.next
	r.next = (r.next + 1) % keptDecisions
}

// Of is the latest decision about a pod.
func (r *Recent) Of(uid types.UID) (Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, has := r.at[uid]
	if !has {
		return Record{}, false
	}
	return r.ring[i], true
}
