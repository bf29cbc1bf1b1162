// Package hop names the twelve hops between a client and a Pod that serves traffic, and records how long each request
// spent at each of them. Every other package may import it; it imports none of this module.
package hop

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Hop is one of the twelve stages.
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

// String returns the short name of the hop.
func (h Hop) String() string {
	return [...]string{"", "client", "authenticate", "authorize", "mutate", "schema", "validate", "commit", "watch",
		"control", "schedule", "node", "network"}[h]
}

// Record has the time that one write spent at each hop. It is found by the UID of the object and the revision of the
// write, and is kept outside of the objects.
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
	// CauseUID and CauseRev identify the write whose event made a controller do this one.
	CauseUID types.UID
	CauseRev int64
}

// Clock measures the hops of one request. The zero value measures nothing until Begin is called.
type Clock struct {
	Record Record
	last   time.Time
}

// Begin starts the clock.
func (c *Clock) Begin(now time.Time) { c.Record.Start, c.last = now, now }

// Done adds the time since the last call of Begin or Done to hop h.
func (c *Clock) Done(h Hop) {
	if c.last.IsZero() {
		return
	}
	now := time.Now()
	c.Record.Took[h] += now.Sub(c.last)
	c.last = now
}

// Recorder keeps the latest records in a ring buffer.
type Recorder struct {
	mu    sync.Mutex // guards ring and next
	ring  []Record
	next  int
	limit int
}

// NewRecorder returns a recorder that keeps at most limit records.
func NewRecorder(limit int) *Recorder { return &Recorder{limit: limit} }

// Add adds a record, in place of the oldest if the recorder is full. Adding to a nil recorder does nothing.
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

// Of returns the records of one object, sorted by revision; they need not have been added in that order.
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

// Len returns the number of records.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ring)
}
