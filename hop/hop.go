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

// Record is what one actor did about one object at one revision: a write with the hops that it passed, or work that is no
// write, such as a reconcile or a step of a Pod's start. It is found by the UID of the object and the revision, and is kept
// outside of the objects.
type Record struct {
	UID types.UID
	Rev int64
	// Verb is the verb of a write, or one of the names below for other work.
	Verb                         string
	Group, Resource, Subresource string
	Namespace, Name              string
	User                         string
	Code                         int
	Start                        time.Time
	// Took has the time at each hop, waiting included; the hops of a record follow one another from Start on. Wait is the part of
	// it that was spent waiting: in a queue, for a seat, for a back-off.
	Took, Wait [Count + 1]time.Duration
	// Steps are the parts of hops that have names of their own: an admission plugin, a webhook, a policy, a scheduler plugin.
	Steps []Step
	// CauseUID and CauseRev identify the write whose event made an actor do this.
	CauseUID types.UID
	CauseRev int64
	// Origin is what is known of the client of a request over HTTP; nil for a caller in this process.
	Origin *Origin
	// Process names the server or agent that has recorded it.
	Process string
	// Open says that the work has not ended; Took is then how long it has taken so far.
	Open bool
	// Error says why the work has failed; empty when it has not.
	Error string
}

// The verbs of records that are no writes.
const (
	// Deliver is the way of a write through the watch cache to one consumer, which is the user.
	Deliver = "deliver"
	// Reconcile is one reconcile of a controller; its waiting is the time in the work queue.
	Reconcile = "reconcile"
	// ScheduleAttempt is one attempt of the scheduler to place a Pod, with the steps queue, filter, score and bind.
	ScheduleAttempt = "schedule"
	// Program is the programming of a node's Service rules; the object is the EndpointSlice or Service.
	Program = "program"
	// The steps of a Pod's start and life on its node.
	Receive    = "receive"
	Volumes    = "volumes"
	Sandbox    = "sandbox"
	PodNetwork = "network"
	Pull       = "pull"
	Container  = "container"
	Probe      = "probe"
)

// Step is a named part of a record.
type Step struct {
	Hop  Hop
	Name string
	// After is when the step began, counted from the start of the record.
	After, Took, Wait time.Duration
	// Detail is what is worth knowing of it, such as the bytes of an image; never a secret.
	Detail string
	Failed bool
}

// Origin tells which client sent a request.
type Origin struct {
	Agent   string // the User-Agent
	AuditID string
	// Session and Command are kubectl's own headers Kubectl-Session and Kubectl-Command: all requests of one command have the
	// same session.
	Session, Command string
	// TraceParent is the W3C traceparent of a user who may set it.
	TraceParent string
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

// Waited says that d of the time at hop h was spent waiting.
func (c *Clock) Waited(h Hop, d time.Duration) { c.Record.Wait[h] += d }

// Step adds a named part of hop h that began at begin and ends now.
func (c *Clock) Step(h Hop, name string, begin time.Time, failed bool) {
	if c.last.IsZero() || len(c.Record.Steps) >= maxSteps {
		return
	}
	c.Record.Steps = append(c.Record.Steps,
		Step{Hop: h, Name: name, After: begin.Sub(c.Record.Start), Took: time.Since(begin), Failed: failed})
}

// maxSteps is how many steps a record has at most.
const maxSteps = 64

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

// Update replaces the open record of the same work: that with the same UID, revision, verb, user and start. Without one it
// adds the record.
func (r *Recorder) Update(rec Record) {
	if r == nil {
		return
	}
	if !r.replace(&rec) {
		r.Add(rec)
	}
}

func (r *Recorder) replace(rec *Record) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.ring) - 1; i >= 0; i-- {
		have := &r.ring[(r.next+i)%len(r.ring)] // the newest first
		if have.Open && have.UID == rec.UID && have.Rev == rec.Rev && have.Verb == rec.Verb && have.User == rec.User &&
			have.Start.Equal(rec.Start) {
			*have = *rec
			return true
		}
	}
	return false
}

// Select returns copies of the records that a predicate chooses, oldest first. The predicate must be quick and must not keep the record.
func (r *Recorder) Select(choose func(*Record) bool) []Record {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Record
	for i := range r.ring {
		if rec := &r.ring[(r.next+i)%len(r.ring)]; choose(rec) {
			out = append(out, *rec)
		}
	}
	return out
}

// Of returns the records of one object, sorted by revision; they need not have been added in that order.
func (r *Recorder) Of(uid types.UID) []Record {
	out := r.Select(func(rec *Record) bool { return rec.UID == uid })
	slices.SortStableFunc(out, func(a, b Record) int { return cmp.Compare(a.Rev, b.Rev) })
	return out
}

// Len returns the number of records.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ring)
}
