package schedule

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// LastAttempt is what the scheduler found when it last tried to place a Pod.
type LastAttempt struct {
	At      time.Time
	Number  int // how often the Pod was tried, this attempt included
	Profile string
	// Node is the node that was chosen, and Message says why the attempt has failed; one of them is empty.
	Node, Message string
	// Total is the number of nodes of the cluster, Examined how many of them were looked at, Feasible how many of these were
	// found suitable.
	Total, Examined, Feasible int
	// Nodes are the nodes that were looked at, and LeftOut how many more of them there were.
	Nodes   []NodeFinding
	LeftOut int
	// Rest says why the nodes that were not looked at are not suitable; empty when the search has ended because enough were found.
	Rest []string
}

// NodeFinding is what the scheduler found about one node: why it was rejected, or its score. A node that is the only suitable one gets
// no score.
type NodeFinding struct {
	Node    string
	Plugin  string   // that has rejected the node
	Reasons []string // empty when the node is suitable
	Scored  bool
	Score   int64 // the sum of the weighted scores
	Scores  []PluginScore
}

// PluginScore is what one plugin adds to the score of a node.
type PluginScore struct {
	Plugin string
	Score  int64 // weighted
}

// Recent has the last attempts of the Pods that were tried last, for those who ask why a Pod is on its node or on none. It keeps what
// a decision has computed anyway, and in memory that is used again, so that it costs a scheduler little.
type Recent struct {
	mu   sync.Mutex // guards what follows
	ring []keptAttempt
	next int
	at   map[types.UID]int
}

// maxAttempts is the number of Pods of which the last attempt is kept, maxScored and maxRejected the number of suitable and of
// rejected nodes that are kept of each attempt. Keeping the scores of 50 nodes takes some 1.5 microseconds.
const (
	maxAttempts = 500
	maxScored   = 50
	maxRejected = 100
)

// keptAttempt is an attempt as it is kept. It refers neither to the snapshot nor to Pods and nodes, whose memory could not be freed.
type keptAttempt struct {
	LastAttempt // without Nodes
	uid         types.UID
	rejections  []framework.NodeRejection
	feasible    []string
	totals      []int64
	scoredBy    []*framework.Plugin
	scores      []int64 // before weighting, by node and plugin
}

// NewRecent returns an empty Recent.
func NewRecent() *Recent { return &Recent{at: map[types.UID]int{}} }

// add adds an attempt, in place of the Pod's last one or of that of another Pod.
func (r *Recent) add(t *attempt, d *framework.Decision) {
	uid := t.info.Pod.UID
	r.mu.Lock()
	defer r.mu.Unlock()
	i, has := r.at[uid]
	switch {
	case has:
	case len(r.ring) < maxAttempts:
		i = len(r.ring)
		r.ring = append(r.ring, keptAttempt{})
	default:
		i = r.next
		r.next = (r.next + 1) % maxAttempts
		delete(r.at, r.ring[i].uid)
	}
	r.at[uid] = i
	k := &r.ring[i]
	k.uid = uid
	k.LastAttempt = LastAttempt{At: t.start, Number: t.Attempts, Profile: t.profile.Name, Node: d.Node, Total: d.Total,
		Examined: d.Examined, Feasible: d.Feasible}
	if d.RestRejection != nil {
		k.Rest = d.RestRejection.Reasons
	}
	clear(k.rejections)
	k.rejections = append(k.rejections[:0], d.Rejections[:min(len(d.Rejections), maxRejected)]...)
	k.LeftOut = len(d.Rejections) - len(k.rejections)
	k.keepScores(d, t.prepared)
}

// keepScores keeps the scores of the suitable nodes, that of the chosen one among them.
func (k *keptAttempt) keepScores(d *framework.Decision, c *preparedPod) {
	clear(k.feasible)
	k.feasible, k.totals, k.scores, k.scoredBy = k.feasible[:0], k.totals[:0], k.scores[:0], nil
	if d.ScoredAt.IsZero() {
		if d.Node != "" {
			k.feasible = append(k.feasible, d.Node)
		}
		return
	}
	k.scoredBy = c.scoredBy
	n := min(len(c.feasible), maxScored)
	k.LeftOut += len(c.feasible) - n
	for i := range n {
		if i == n-1 && c.chosen >= n {
			i = c.chosen
		}
		k.feasible = append(k.feasible, c.feasible[i].Name())
		k.totals = append(k.totals, c.totals[i])
		k.scores = c.appendScores(k.scores, i)
	}
}

// setFailed says that the last attempt about a Pod has failed.
func (r *Recent) setFailed(uid types.UID, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, has := r.at[uid]; has {
		r.ring[i].Node, r.ring[i].Message = "", message
	}
}

// Of returns the last attempt to place a Pod.
func (r *Recent) Of(uid types.UID) (LastAttempt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, has := r.at[uid]
	if !has {
		return LastAttempt{}, false
	}
	return r.ring[i].findings(), true
}

// findings returns the attempt with its nodes, in memory of its own: the suitable ones from the best to the worst, then the rejected ones.
func (k *keptAttempt) findings() LastAttempt {
	out := k.LastAttempt
	for i, name := range k.feasible {
		f := NodeFinding{Node: name}
		if len(k.scoredBy) > 0 {
			f.Scored, f.Score = true, k.totals[i]
			rest := f.Score
			for nth, p := range k.scoredBy {
				score := k.scores[i*len(k.scoredBy)+nth] * p.Weight
				f.Scores = append(f.Scores, PluginScore{Plugin: p.Name, Score: score})
				rest -= score
			}
			if rest != 0 { // what is not of plugins is of extenders
				f.Scores = append(f.Scores, PluginScore{Plugin: podqueue.ExtenderPlugin, Score: rest})
			}
		}
		out.Nodes = append(out.Nodes, f)
	}
	slices.SortStableFunc(out.Nodes, func(a, b NodeFinding) int {
		switch {
		case a.Score != b.Score:
			return cmp.Compare(b.Score, a.Score)
		case a.Node == k.Node: // of the nodes with the best score, the chosen one comes first
			return -1
		case b.Node == k.Node:
			return 1
		}
		return cmp.Compare(a.Node, b.Node)
	})
	rejected := len(out.Nodes)
	for i := range k.rejections {
		v := &k.rejections[i]
		out.Nodes = append(out.Nodes, NodeFinding{Node: v.Node, Plugin: v.Plugin, Reasons: slices.Clone(v.Reasons)})
	}
	slices.SortStableFunc(out.Nodes[rejected:], func(a, b NodeFinding) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
