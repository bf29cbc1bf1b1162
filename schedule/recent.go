package schedule

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule/framework"
)

// Record is a past decision, with the inputs that are needed to explain it.
type Record struct {
	Pod      *framework.PodInfo
	Profile  *framework.Profile
	Decision framework.Decision
	At       time.Time
	Attempt  int

	snapshot *framework.Snapshot
}

// Explain makes the decision again, and returns it with the rejections and scores of all examined nodes. Objects other
// than Pods and nodes are the current ones.
func (r Record) Explain() framework.Decision {
	d := Explain(r.snapshot, r.Pod, r.Profile, r.Decision.Seed)
	d.PostFilterMessage, d.Prepared = r.Decision.PostFilterMessage, nil
	return d
}

// Recent has the latest decisions in a ring buffer, one for each Pod.
type Recent struct {
	mu   sync.Mutex // guards what follows
	ring []Record
	next int
	at   map[types.UID]int
}

// maxRecords is the number of decisions that are kept. Snapshots share most of their memory, so each costs little.
const maxRecords = 2048

// NewRecent returns an empty Recent.
func NewRecent() *Recent { return &Recent{at: map[types.UID]int{}} }

func (r *Recent) add(rec Record) {
	rec.Decision.Rejections, rec.Decision.Prepared = nil, nil
	uid := rec.Pod.Pod.UID
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, has := r.at[uid]; has {
		r.ring[i] = rec
		return
	}
	if len(r.ring) < maxRecords {
		r.at[uid] = len(r.ring)
		r.ring = append(r.ring, rec)
		return
	}
	delete(r.at, r.ring[r.next].Pod.Pod.UID)
	r.ring[r.next], r.at[uid] = rec, r.next
	r.next = (r.next + 1) % maxRecords
}

// Of returns the latest decision about a Pod.
func (r *Recent) Of(uid types.UID) (Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, has := r.at[uid]
	if !has {
		return Record{}, false
	}
	return r.ring[i], true
}
