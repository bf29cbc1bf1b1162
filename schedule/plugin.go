package schedule

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

// Plugin is one scheduling concern.
type Plugin struct {
	Name string
	// Weight multiplies its scores.
	Weight int64
	// Reads are the resources besides pods and nodes whose objects it looks up in Snapshot.Cluster.
	Reads []schema.GroupResource
	// Images says that what it prepares depends on how many nodes have an image; it may only score.
	Images bool
	// Wakes are the changes that can make a pod fit which it has rejected.
	Wakes []Wake
	// Gate keeps a pod out of the queue for as long as it returns a verdict.
	Gate func(*corev1.Pod) *Verdict
	// Prepare compiles one pod against one snapshot.
	Prepare func(*Snapshot, *PodInfo) Prepared
	// Rescue is asked when no node fits: it may make room, and returns the node it makes room on.
	Rescue func(context.Context, Attempt) Rescue
}

// Prepared is what a plugin has to say about one pod. All fields may be zero.
type Prepared struct {
	// Reject says that the pod fits no node at all.
	Reject *Verdict
	// Nodes are the names of the only nodes that can do; nil stands for all.
	Nodes sets.Set[string]
	// Filter says why a node will not do; nil means that it will.
	Filter func(*NodeInfo) *Verdict
	// Score says how good a node is.
	Score func(*NodeInfo) int64
	// Normalize brings the scores of the nodes that fit into 0..MaxScore, in place. The nodes are those of the scores.
	Normalize func(nodes []*NodeInfo, scores []int64)

	// Reuse is what the plugin promises about the closures above.
	Reuse Reuse
	// Update keeps them true when a pod came to a node (by is 1) or left it (by is -1). It returns false when they
	// have to be made anew to score; Filter must be true even then, and the opposite must undo it, for this is how it is
	// tried out what would be if pods were gone. With WhileTold it must be set, with Never it may be.
	Update func(node *NodeInfo, pod *PodInfo, by int) bool

	// Reserve claims what the pod needs on its node, in memory. Unreserve gives it back; it is called for each
	// plugin when a later step of any fails, whether or not its own Reserve was called.
	Reserve   func(node string) *Verdict
	Unreserve func(node string)
	// Permit may hold the pod back.
	Permit func(node string) Permission
	// PreBind does what must be done before the pod is bound, and waits for it.
	PreBind func(ctx context.Context, node string) error
	// PostBind is told that the pod is bound.
	PostBind func(node string)
}

// Reuse says for how long what a plugin prepared for a pod holds for pods equal to it.
type Reuse uint8

// The promises, see the package comment.
const (
	Never Reuse = iota
	WhileNode
	WhileTold
)

// Silent is what a plugin returns that has nothing to say about a pod, nor about any pod equal to it.
func Silent() Prepared { return Prepared{Reuse: WhileNode} }

// Verdict is a no. It is shared and read-only.
type Verdict struct {
	// Reasons are counted over all nodes and shown to users.
	Reasons []string
	// Unresolvable says that evicting pods from the node would not help.
	Unresolvable bool
	// Pending says that the pod waits for something that is on its way, so that its next try comes without back-off.
	Pending bool
	// Err says that there is no answer. The pod is tried again with back-off, whatever happens in the cluster.
	Err error
}

// No is a verdict that evicting pods can change.
func No(reasons ...string) *Verdict { return &Verdict{Reasons: reasons} }

// NotEver is a verdict that evicting pods cannot change.
func NotEver(reasons ...string) *Verdict { return &Verdict{Reasons: reasons, Unresolvable: true} }

// Failed is a verdict for an error.
func Failed(err error) *Verdict { return &Verdict{Reasons: []string{err.Error()}, Err: err} }

// Permission is the answer of Permit. The zero value lets the pod go on.
type Permission struct {
	Verdict *Verdict
	// Wait, if set, yields nil when the pod may go on, or a verdict.
	Wait <-chan *Verdict
	// For is how long to wait at most. Leave, if set, is called when that is over; false says that the answer has just come, and
	// is to be taken.
	For   time.Duration
	Leave func() bool
}

// Attempt is what Rescue has to work with. The decision has the verdict of every node.
type Attempt struct {
	Snapshot *Snapshot
	Pod      *PodInfo
	Profile  *Profile
	Decision *Decision
}

// Rescue is what came of it.
type Rescue struct {
	// Node is where room is being made; the pod is nominated for it.
	Node string
	// Clear takes an older nomination away.
	Clear bool
	// Message is added to what users read.
	Message string
	// Done says that no other plugin shall try.
	Done bool
}

// Wake is a change that can make a rejected pod fit.
type Wake struct {
	On Resource
	Do Action
	// If says whether this change can help this pod; nil means that it always can. was is nil for an added object,
	// is for a deleted one.
	If func(pod *corev1.Pod, was, is kind.Object) bool
}

// Profile is a scheduler name with the plugins that stand behind it, in their order.
type Profile struct {
	Name    string
	Plugins []Plugin
	// Percentage of the nodes that must be found to fit before the search ends; 0 means less in larger clusters.
	Percentage int32
	// Extenders are asked about the nodes that fit.
	Extenders []*Extender
}
