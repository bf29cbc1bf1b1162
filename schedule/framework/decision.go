package framework

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Seed has the random inputs of a decision.
type Seed struct {
	// Start is the position of the node at which the search begins. It advances from Pod to Pod, so that all nodes are
	// examined over time even if each search ends early.
	Start int
	// Tie decides between nodes with the same score.
	Tie uint64
}

// Decision is the result of one scheduling attempt.
type Decision struct {
	// Node is the chosen node; empty if there is none.
	Node string
	Seed Seed
	// Total is the number of nodes, Examined how many of them were examined, Feasible how many of these are feasible.
	Total, Examined, Feasible int
	// Score is the score of the node. It is 0 if only one node was feasible.
	Score int64
	// ScoredAt is when the filtering ended and the scoring of nodes began; zero if no nodes were scored.
	ScoredAt time.Time

	// PodRejection is set if a plugin has rejected the Pod for all nodes.
	PodRejection *Rejection
	// Rejections has the rejections of the examined nodes that are not feasible.
	Rejections []NodeRejection
	// RestRejection, if not nil, is the rejection of all nodes that are not in Rejections.
	RestRejection *Rejection
	// RejectedBy are the plugins that rejected the Pod or nodes, PendingPlugins those whose rejections are pending.
	RejectedBy, PendingPlugins sets.Set[string]
	// PostFilterMessage is the message of PostFilter.
	PostFilterMessage string
	// Err is set if a plugin or extender has failed.
	Err error

	// ScoredBy and Scores are set by Explain: the names of the plugins that score, and the weighted scores of each
	// feasible node in the order of ScoredBy.
	ScoredBy []string
	Scores   []NodeScores

	// Prepared are the prepared plugins, whose Reserve and later functions are called for a Pod with a node.
	Prepared []PreparedPlugin
}

// NodeRejection is a node that is not feasible, with the plugin that rejected it.
type NodeRejection struct {
	Node   string
	Plugin string
	*Rejection
}

// NodeScores are the scores of a node.
type NodeScores struct {
	Node     string
	Total    int64
	ByPlugin []int64
}

const noNodes = "no nodes available to schedule pods"

// Message returns why there is no node, in upstream's words; it is empty if there is one.
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
	if d.PodRejection != nil {
		fmt.Fprintf(&b, " %s.", strings.Join(d.PodRejection.Reasons, ", "))
	} else if all := d.Reasons(); len(all) > 0 {
		fmt.Fprintf(&b, " %s.", strings.Join(all, ", "))
	}
	if d.PostFilterMessage != "" {
		fmt.Fprintf(&b, " %s", d.PostFilterMessage)
	}
	return b.String()
}

// Reasons returns the reasons of all nodes with the number of nodes for each, sorted.
func (d *Decision) Reasons() []string {
	count := map[string]int{}
	for i := range d.Rejections {
		for _, r := range d.Rejections[i].Reasons {
			count[r]++
		}
	}
	if d.RestRejection != nil && len(d.Rejections) < d.Total {
		for _, r := range d.RestRejection.Reasons {
			count[r] += d.Total - len(d.Rejections)
		}
	}
	out := make([]string, 0, len(count))
	for r, n := range count {
		out = append(out, fmt.Sprintf("%d %s", n, r))
	}
	slices.Sort(out)
	return out
}

// RejectionOf returns the rejection of a node, or nil.
func (d *Decision) RejectionOf(node string) *Rejection {
	if d.PodRejection != nil {
		return d.PodRejection
	}
	for i := range d.Rejections {
		if d.Rejections[i].Node == node {
			return d.Rejections[i].Rejection
		}
	}
	return d.RestRejection
}

// AddRejectingPlugin adds a plugin to RejectedBy or PendingPlugins.
func (d *Decision) AddRejectingPlugin(plugin string, r *Rejection) {
	into := &d.RejectedBy
	if r.Pending {
		into = &d.PendingPlugins
	}
	if *into == nil {
		*into = sets.New[string]()
	}
	into.Insert(plugin)
}
