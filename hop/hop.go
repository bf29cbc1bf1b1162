// Package hop names the twelve hops between a client and a Pod that serves traffic, and keeps a bounded record
// of what each request spent at each of them. It is a leaf: every room of the house may import it.
package hop

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Hop is one of the twelve.
type Hop uint8

// The twelve hops, in order.
const (
	Client Hop = iota + 1
	Authenticate
	Authorize
	Mutate
	Schema
	Validate
	Commit
	Watch
	Control
	Schedule
	Node
	Network
)

// Count is the number of hops.
const Count = 12

// String is the hop's short name.
func (h Hop) String() string {
	return [...]string{"", "client", "authenticate", "authorize", "mutate", "schema", "validate", "commit", "watch",
		"control", "schedule", "node", "network"}[h]
}

// Record is what one write spent where. It is keyed by the object's UID and the revision the write got, and
// lives beside the objects, never in them.
type Record struct {
	UID       types.UID
	Rev       int64
	Verb      string
	Resource  string
	Namespace string
	Name      string
	User      string
	Code      int
	Start     time.Time
	Took      [Count + 1]time.Duration // by Hop
	// CauseUID and CauseRev name the write whose event made a loop do this one.
	CauseUID types.UID
	CauseRev int64
}

// Clock measures one request. The zero value does nothing.
type Clock struct {
	Record Record
	last   time.Time
}

// Begin starts the clock.
func (c *Clock) Begin(now time.Time) { c.Record.Start, c.last = now, now }

// Done says that the time since the last call was spent at h.
func (c *Clock) Done(h Hop) {
	if c.last.IsZero() {
		return
	}
	now := time.Now()
	c.Record.Took[h] += now.Sub(c.last)
	c.last = now
}

// Recorder keeps the latest records in bounded memory.
type Recorder struct {
	mu    sync.Mutex // guards ring and next
	ring  []Record
	next  int
	limit int
}

// NewRecorder keeps at most limit records.
func NewRecorder(limit int) *Recorder { return &Recorder{limit: limit} }

// Add keeps a record, and forgets the oldest when there are too many.
func (r *Recorder) Add(rec Record) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, rec)
		return
	}
	r.ring[r.next] = rec
	r.next = (r.next + 1) % r.limit
}

// Of returns the records of one object, oldest first: in the order of their revisions, since the record of a write may be
// added after that of one which followed it.
func (r *Recorder) Of(uid types.UID) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Record
	for i := range r.ring {
		if rec := r.ring[(r.next+i)%len(r.ring)]; rec.UID == uid {
			out = append(out, rec)
		}
	}
	slices.SortStableFunc(out, func(a, b Record) int { return cmp.Compare(a.Rev, b.Rev) })
	return out
}

// Len is the number of records kept.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ring)
}
