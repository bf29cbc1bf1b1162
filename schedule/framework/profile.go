package framework

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Profile is a scheduler name with its plugins, in the order in which they are called.
type Profile struct {
	Name    string
	Plugins []Plugin
	// Percentage of the nodes that must be found feasible before the search ends; 0 means a percentage that decreases
	// with the cluster size.
	Percentage int32
	// Extenders are called for the feasible nodes.
	Extenders []*Extender
}

// The search examines all nodes of a cluster with fewer than minFeasibleNodes. In larger ones it ends when a percentage
// of the nodes is found feasible: half of them, and less in very large clusters, but at least minFeasiblePercent.
const (
	minFeasibleNodes   = 100
	minFeasiblePercent = 5
)

// NodesToFind returns how many of n nodes must be found feasible before the search ends.
func (p *Profile) NodesToFind(n int) int {
	if n < minFeasibleNodes {
		return n
	}
	percent := int(p.Percentage)
	if percent == 0 {
		percent = max(50-n/125, minFeasiblePercent)
	}
	return max(n*percent/100, minFeasibleNodes)
}

// HasNodeExtenders reports whether an extender filters or scores nodes. Then the search must not end with the first
// feasible node.
func (p *Profile) HasNodeExtenders() bool {
	return slices.ContainsFunc(p.Extenders, func(e *Extender) bool { return e.FilterVerb != "" || e.PrioritizeVerb != "" })
}

// BinderFor returns the extender that binds a Pod, or nil.
func (p *Profile) BinderFor(pod *corev1.Pod) *Extender {
	i := slices.IndexFunc(p.Extenders, func(e *Extender) bool { return e.BindVerb != "" && e.IsInterested(pod) })
	if i < 0 {
		return nil
	}
	return p.Extenders[i]
}

// FilterCandidates lets extenders remove candidates of a preemption, or change their victims.
func (p *Profile) FilterCandidates(a PostFilterInput, all []PreemptionCandidate) ([]PreemptionCandidate, error) {
	for _, e := range p.Extenders {
		if e.PreemptVerb == "" || !e.IsInterested(a.Pod.Pod) {
			continue
		}
		next, err := e.preemptCandidates(a, all)
		if err != nil {
			if e.Ignorable {
				continue
			}
			return nil, err
		}
		if all = next; len(all) == 0 {
			break
		}
	}
	return all, nil
}
