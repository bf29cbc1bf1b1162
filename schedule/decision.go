package schedule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Seed is all that is arbitrary in a decision.
type Seed struct {
	// Start is where in the order of nodes the search begins. It goes round from pod to pod, so that every node gets
	// its chance in a cluster of which only a part is searched.
	Start int
	// Tie decides between nodes that are equally good.
	Tie uint64
}

// Decision is what came of one attempt.
type Decision struct {
	// Node is where the pod shall go, or "".
	Node string
	Seed Seed
	// Total nodes exist; Seen of them were looked at, and Fits do.
	Total, Seen, Fits int
	// Score is that of the node. It is 0 when there was no choice.
	Score int64

	// Rejected says that the pod fits no node, whichever.
	Rejected *Verdict
	// Verdicts are those of the nodes that were looked at and do not fit.
	Verdicts []NodeVerdict
	// Rest, if set, is the verdict of all nodes that are not in Verdicts.
	Rest *Verdict
	// By are the plugins that said no, Pending those of them that wait for something.
	By, Pending sets.Set[string]
	// Rescue is what making room came to.
	Rescue string
	// Err says that there is no decision.
	Err error

	// Plugins and Scores are there if the decision was to be explained: what each plugin gave to each node that fits,
	// weighted, in the order of Plugins.
	Plugins []string
	Scores  []NodeScores

	parts []part // whose steps a pod with a node goes through
}

// NodeVerdict is a node that does not fit, and why.
type NodeVerdict struct {
	Node   string
	Plugin string
	*Verdict
}

// NodeScores are what a node got.
type NodeScores struct {
	Node  string
	Total int64
	Each  []int64
}

const noNodes = "no nodes available to schedule pods"

// Message is why there is no node, in the words users know.
func (d *Decision) Message() string {
	if d.Err != nil {
		return d.Err.Error()
	}
	if d.Node != "" {
		return ""
	}
	if d.Total == 0 {
		return noNodes
	}
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available:", d.Total)
	if d.Rejected != nil {
		fmt.Fprintf(&b, " %s.", strings.Join(d.Rejected.Reasons, ", "))
	} else if all := d.Reasons(); len(all) > 0 {
		fmt.Fprintf(&b, " %s.", strings.Join(all, ", "))
	}
	if d.Rescue != "" {
		fmt.Fprintf(&b, " %s", d.Rescue)
	}
	return b.String()
}

// Reasons are the reasons of all nodes with how often each was given, sorted as text.
func (d *Decision) Reasons() []string {
	count := map[string]int{}
	for i := range d.Verdicts {
		for _, r := range d.Verdicts[i].Reasons {
			count[r]++
		}
	}
	if d.Rest != nil && len(d.Verdicts) < d.Total {
		for _, r := range d.Rest.Reasons {
			count[r] += d.Total - len(d.Verdicts)
		}
	}
	out := make([]string, 0, len(count))
	for r, n := range count {
		out = append(out, fmt.Sprintf("%d %s", n, r))
	}
	slices.Sort(out)
	return out
}

// VerdictOf is the verdict of a node, or nil.
func (d *Decision) VerdictOf(node string) *Verdict {
	if d.Rejected != nil {
		return d.Rejected
	}
	for i := range d.Verdicts {
		if d.Verdicts[i].Node == node {
			return d.Verdicts[i].Verdict
		}
	}
	return d.Rest
}
