package framework

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/kinds/kind"
)

// MaxScore is the best score of a plugin for a node.
const MaxScore = 100

// Plugin is a scheduling plugin. All fields but Name are optional.
type Plugin struct {
	Name string
	// Weight multiplies the scores of the plugin.
	Weight int64
	// Reads are the resources besides Pods and nodes that the plugin reads from Snapshot.Cluster.
	Reads []schema.GroupResource
	// UsesImageStates says that Prepare depends on the number of nodes that have an image. Such a plugin may only
	// score.
	UsesImageStates bool
	// QueueingHints are the events that can make a Pod schedulable that the plugin has rejected.
	QueueingHints []QueueingHint
	// PreEnqueue keeps a Pod out of the queue as long as it returns a rejection.
	PreEnqueue func(*corev1.Pod) *Rejection
	// Prepare evaluates one Pod against one snapshot.
	Prepare func(*Snapshot, *PodInfo) Prepared
	// PostFilter is called when no node is feasible. It may preempt Pods, and returns the node on which it makes room.
	PostFilter func(context.Context, PostFilterInput) PostFilterResult
}

// Prepared is a plugin applied to one Pod. All fields are optional.
type Prepared struct {
	// Reject says that no node is suitable.
	Reject *Rejection
	// Nodes are the names of the only nodes that may be suitable; nil stands for all.
	Nodes sets.Set[string]
	// Filter returns why a node is not suitable; nil if it is.
	Filter func(*NodeInfo) *Rejection
	// Score returns how good a node is.
	Score func(*NodeInfo) int64
	// Normalize maps the scores of the feasible nodes to 0..MaxScore, in place. scores[i] belongs to nodes[i].
	Normalize func(nodes []*NodeInfo, scores []int64)

	// Reuse says under which conditions the functions above may be used for equal Pods.
	Reuse Reuse
	// Update keeps the functions above valid when a Pod was added to a node (by is 1) or removed from it (by is -1). It
	// returns false if Prepare has to be called again before scoring; Filter must be valid even then. Calling Update
	// with the opposite of by must undo it, because dry runs of preemption use it. It is required for ReuseWhileUpdated
	// and optional for ReuseNever.
	Update func(node *NodeInfo, pod *PodInfo, by int) bool

	// Reserve reserves in memory what the Pod needs on its node. Unreserve undoes that; it is called for every plugin
	// when a later step fails, whether or not its own Reserve was called.
	Reserve   func(node string) *Rejection
	Unreserve func(node string)
	// Permit may delay the binding of the Pod.
	Permit func(node string) Permission
	// PreBind does what must be done before the Pod is bound, and waits for it.
	PreBind func(ctx context.Context, node string) error
	// PostBind is called after the Pod was bound.
	PostBind func(node string)
}

// Reuse says under which conditions a Prepared may be used for Pods that are equal to the one it was made for.
type Reuse uint8

// The conditions are explained in the package comment.
const (
	ReuseNever Reuse = iota
	ReuseWhileNodeUnchanged
	ReuseWhileUpdated
)

// Skip returns the Prepared of a plugin that does not apply to a Pod, nor to any Pod equal to it.
func Skip() Prepared { return Prepared{Reuse: ReuseWhileNodeUnchanged} }

// Permission is the result of Permit. The zero value allows the binding.
type Permission struct {
	Rejection *Rejection
	// Wait, if not nil, makes the Pod wait for a value of the channel: nil allows the binding, a rejection ends it.
	Wait <-chan *Rejection
	// Timeout bounds the wait. GiveUp, if not nil, is called when it is over; if it returns false, a value has just
	// been sent to Wait and must be used.
	Timeout time.Duration
	GiveUp  func() bool
}

// PostFilterInput is the input of PostFilter. The decision has the rejections of all nodes.
type PostFilterInput struct {
	Snapshot *Snapshot
	Pod      *PodInfo
	Profile  *Profile
	Decision *Decision
	// Deadline is when the search for victims must end with what it has found; zero for none.
	Deadline time.Time
}

// PostFilterResult is the result of PostFilter.
type PostFilterResult struct {
	// Node is the node on which room is being made; the Pod is nominated for it.
	Node string
	// ClearNomination removes an older nomination of the Pod.
	ClearNomination bool
	// Message is appended to the message about the failed attempt.
	Message string
	// Final says that PostFilter of other plugins is not called.
	Final bool
}

// QueueingHint is an event that can make a rejected Pod schedulable.
type QueueingHint struct {
	On Resource
	Do Action
	// If returns whether the event can help the Pod; nil means that it always can. was is nil for an added object, is
	// for a deleted one.
	If func(pod *corev1.Pod, was, is kind.Object) bool
}

// PreparedPlugin is a plugin with its Prepared for one Pod.
type PreparedPlugin struct {
	*Plugin
	Prepared
}
