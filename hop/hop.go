// Package hop names the twelve hops between a client and a Pod that serves traffic, and records how long each request
// spent at each of them. Every other package may import it; it imports none of this module.
package hop

import (
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

// String returns the short name of the hop; empty for a number that is no hop.
func (h Hop) String() string {
	if h > Count {
		return ""
	}
	return [...]string{"", "client", "authenticate", "authorize", "mutate", "schema", "validate", "commit", "watch",
		"control", "schedule", "node", "network"}[h]
}

// Record is what one actor did about one object at one revision: a write with the hops that it passed, or work that is no
// write, such as a reconcile or a step of a Pod's start. It is found by the UID of the object and the revision, and is kept
// outside of the objects. A write that was refused is a record too; it has no revision, and no UID if the object did not
// exist.
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
	// Took has the time at each hop, waiting included; the hops of a record follow one another from Start on, except that the
	// time at Schema is the sum of its two halves, one before Mutate and one after it. Wait is the part of Took that was spent
	// waiting: in a queue, for a seat, for a back-off, for a lock.
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
	// Error says why the work has failed; empty when it has not. It never quotes an object that holds secrets.
	Error string
	// Refused is the hop that refused a write; 0 for a write that was committed, and for other work.
	Refused Hop
	// Ready says that the object was ready as it was written, by what its kind calls ready.
	Ready bool
	// Removed says that the write has removed the object: a delete, or an update that took the last finalizer away.
	Removed bool
	// Wire has the bodies of the request and its answer; nil when they are not kept. It must not be stored or sent to another
	// process, and only a user who may get the object may see it.
	Wire *Wire
}

// The verbs of records that are no writes.
const (
	// Deliver is the way of a write through the watch cache to one consumer, which is the user.
	Deliver = "deliver"
	// Reconcile is one reconcile of a controller, which is the user, that has written something or has failed. The object is
	// the one whose write woke the controller, and that write is the cause. The time at Watch is the time from the commit of
	// that write until its event reached the controller; the waiting at Control is the time in the work queue, and the
	// back-off after a failure.
	Reconcile = "reconcile"
	// ScheduleAttempt is one attempt of the scheduler to place a Pod, with the steps queue, filter, score and bind.
	ScheduleAttempt = "schedule"
	// Program is the programming of a node's Service rules; the object is the EndpointSlice or Service.
	Program = "program"
	// Answer is the first answer of a Pod to a client, from the client's first packet on; the object is the EndpointSlice with which the
	// Pod became reachable, and the name of its step the name of the Pod.
	Answer = "answer"
	// The steps of a Pod's start and life on its node.
	Receive    = "receive"
	Volumes    = "volumes"
	Sandbox    = "sandbox"
	PodNetwork = "network"
	Pull       = "pull"
	Container  = "container"
	Probe      = "probe"
	// Stop is the end of a Pod that was deleted or that its node ends, until its containers have ended and its volumes are unmounted.
	Stop = "stop"
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
	// Began is when the first request of the session arrived, which may have been a read; zero when that is not known.
	Began time.Time `json:",omitzero"`
	// TraceParent is the W3C traceparent of a user who may set it.
	TraceParent string
}

// Wire is the bodies of one request over HTTP and of its answer, as they were sent, up to MaxBody bytes each.
//
// A caller in this process sends no bytes. Its bodies are the object that it handed over and the object that it was answered, in a short
// encoding; they are shown as JSON.
type Wire struct {
	Request, Response         []byte
	RequestType, ResponseType string // the media types
	RequestSize, ResponseSize int    // in bytes, of the whole bodies
	// InProcess says that the caller is in this process.
	InProcess bool
	// RequestJSON and ResponseJSON turn the bodies of a caller in this process into JSON; nil if they are JSON already, or are not kept
	// because they are larger than MaxBody.
	RequestJSON, ResponseJSON func(body []byte) ([]byte, error) `json:"-"`
}

// SetRequest copies the body of a request, or the beginning of it.
func (w *Wire) SetRequest(body []byte) { w.Request, w.RequestSize = firstBytes(body), len(body) }

// SetResponse copies the body of the answer, or the beginning of it.
func (w *Wire) SetResponse(body []byte) { w.Response, w.ResponseSize = firstBytes(body), len(body) }

func firstBytes(b []byte) []byte { return append([]byte(nil), b[:min(len(b), MaxBody)]...) }

// IsWrite reports whether a record is of a write, committed or refused, and not of other work.
func (r *Record) IsWrite() bool { return IsWriteVerb(r.Verb) }

// IsWriteVerb reports whether requests with a verb are writes.
func IsWriteVerb(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// SetNames names the object of a record. The names may be parts of a long URL, which the record must not keep in memory, so they
// are copied; one string has both.
func (r *Record) SetNames(namespace, name string) {
	both := namespace + "/" + name
	r.Namespace, r.Name = both[:len(namespace)], both[len(namespace)+1:]
}

// End returns when the work of a record ended: its start and the time at all of its hops.
func (r *Record) End() time.Time {
	end := r.Start
	for _, d := range r.Took {
		end = end.Add(d)
	}
	return end
}
