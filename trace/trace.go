// Package trace makes of the records of hops (package hop) the trace of one object: what happened from the request that changed
// it to the Pods that serve, with the time of each hop, what each of them waited for, and which of them the whole had to wait
// for. It decides from records alone, and reads no cluster.
package trace

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

// The API group and version in which traces are served.
const (
	Group   = "trace.proa.dev"
	Version = "v1"
)

// Trace is the trace of one object, as the API serves it. Its name is that of the object behind its resource, as in
// "deployments.apps:web". Traces of objects without a namespace are in the namespace default, as Events are.
type Trace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Object Ref `json:"object"`
	// ClusterUID is the UID of the namespace kube-system, by which exports tell clusters apart.
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// Command is the command line of kubectl that began it, and User who sent it.
	Command string    `json:"command,omitempty"`
	User    string    `json:"user,omitempty"`
	Start   time.Time `json:"start"`
	// End is when the last span ended; nil while one is open.
	End *time.Time `json:"end,omitempty"`
	// Spans are sorted by their start; a parent comes before its children.
	Spans []Span `json:"spans"`
	// Critical is the chain of spans that the whole had to wait for, in order, and Summary the same in one sentence.
	Critical []Share `json:"critical,omitempty"`
	Summary  string  `json:"summary,omitempty"`
	// Milestones are moments that people look for: Accepted, Scheduled, Sandbox, Started, Ready, Programmed, First answer, Deleted.
	Milestones []Milestone `json:"milestones,omitempty"`
	// State is how far it has come, and Took how long that took, or has taken until now.
	State State         `json:"state,omitempty"`
	Took  time.Duration `json:"took,omitempty"`
	// Stuck says in one sentence at which hop an object waits that has not come further, and StuckSpan is the span of that.
	Stuck     string `json:"stuck,omitempty"`
	StuckSpan string `json:"stuckSpan,omitempty"`
	// Hidden is how many spans are about objects that the reader may not see; Dropped how many were left out because there are too
	// many; Later how many records there are of what happened after the object was ready and the cluster quiet.
	Hidden  int `json:"hidden,omitempty"`
	Dropped int `json:"dropped,omitempty"`
	Later   int `json:"later,omitempty"`
	// root is the object whose write began it, and isDeletion says that it began with a request to delete the object of the trace.
	root       Ref
	isDeletion bool
	// stuckRef is the object of StuckSpan, which may have been dropped, and stuckHop its hop.
	stuckRef Ref
	stuckHop hop.Hop
	// stuckError is the error with which Stuck ends; empty if it does not.
	stuckError string
	// Unseen names the other servers of the cluster that did not answer, and whose records are missing.
	Unseen []string `json:"unseen,omitempty"`
}

// State is how far what a trace shows has come.
type State string

// The states of a trace. An object that can neither be ready nor programmed has come as far as it can with its commit.
const (
	Running    State = "Running"
	Failed     State = "Failed" // the request itself was refused
	Accepted   State = "Accepted"
	Programmed State = "Programmed"
	Ready      State = "Ready"
	Deleted    State = "Deleted" // the object was deleted and is gone
)

// Ref names an object.
type Ref struct {
	Group     string    `json:"group,omitempty"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// Span is one piece of work: a request, a hop of it, or a step of that hop.
type Span struct {
	ID string `json:"id"`
	// Parent is the span that this one is a part of; empty for a whole record. What caused it is in Links: across a watch there are
	// causes and no parents.
	Parent string   `json:"parent,omitempty"`
	Links  []string `json:"links,omitempty"`
	// Hop is the number of the hop, from 1 to 12; 0 for a request that has several, which are its children.
	Hop      int    `json:"hop,omitempty"`
	HopName  string `json:"hopName,omitempty"`
	Name     string `json:"name"`
	Actor    string `json:"actor,omitempty"`
	Object   Ref    `json:"object,omitzero"`
	Revision int64  `json:"revision,omitempty"`
	Process  string `json:"process,omitempty"`
	// Start and Took are the span; Wait is the beginning of it that was spent waiting, Took includes it. Both in nanoseconds.
	Start time.Time     `json:"start"`
	Wait  time.Duration `json:"wait,omitempty"`
	Took  time.Duration `json:"took"`
	// Open says that it has not ended: Took is how long it has taken until the trace was read.
	Open     bool   `json:"open,omitempty"`
	Critical bool   `json:"critical,omitempty"`
	Detail   string `json:"detail,omitempty"`
	Error    string `json:"error,omitempty"`
	// AuditID is the ID that the request has in the audit log, and in the header Audit-Id of its answer.
	AuditID string `json:"auditID,omitempty"`
	// TraceParent is the W3C traceparent of a request whose user may set it: the span in another system that this one is a part of.
	TraceParent string `json:"traceParent,omitempty"`
	// Wire has the bodies of a request, if these were asked for.
	Wire *Wire `json:"wire,omitempty"`
	// Hidden says that the reader may not see the object: only hop and times are shown.
	Hidden bool `json:"hidden,omitempty"`
}

// Share is what one span adds to the critical path.
type Share struct {
	Span string        `json:"span"`
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
	// Wait says that this share is time spent waiting.
	Wait bool `json:"wait,omitempty"`
}

// Milestone is a moment of a trace with a name.
type Milestone struct {
	Name string        `json:"name"`
	At   time.Duration `json:"at"` // since the start of the trace
}

// TraceList is a list of traces. The traces of a list have no spans.
type TraceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Trace `json:"items"`
}

// WireTrace is a trace whose spans have the bodies of requests and of their answers. It is a resource of its own, so that the
// right to read bodies can be given apart.
type WireTrace struct {
	Trace `json:",inline"`
}

// WireTraceList is a list of traces with bodies; the traces of a list have no spans.
type WireTraceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WireTrace `json:"items"`
}

// Wire is the bodies of one request and of its answer, or the beginnings of them. Bodies that are no text are not shown.
type Wire struct {
	Request  Body `json:"request,omitzero"`
	Response Body `json:"response,omitzero"`
	// InProcess says that the caller is in the server's process, and that no bytes were sent: Request is the object that it handed over and
	// Response the object that it was answered, both shown as JSON. One that is too large to be kept has no text, and the size of its
	// protobuf.
	InProcess bool `json:"inProcess,omitempty"`
}

// Body is one body.
type Body struct {
	Type string `json:"type,omitempty"` // the media type
	Size int    `json:"size,omitempty"` // of the whole body, in bytes
	Text string `json:"text,omitempty"`
}

// DeepCopy returns a copy that shares nothing with the trace.
func (t *Trace) DeepCopy() *Trace {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if t.End != nil {
		end := *t.End
		out.End = &end
	}
	out.Spans = slices.Clone(t.Spans)
	for i := range out.Spans {
		out.Spans[i].Links = slices.Clone(out.Spans[i].Links)
		if w := out.Spans[i].Wire; w != nil {
			bodies := *w
			out.Spans[i].Wire = &bodies
		}
	}
	out.Critical, out.Milestones, out.Unseen = slices.Clone(t.Critical), slices.Clone(t.Milestones), slices.Clone(t.Unseen)
	return &out
}
