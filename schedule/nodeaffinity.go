package schedule

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/kind"
)

// NodeAffinity lets a pod only onto nodes that match its selector and affinity, and those of the configuration.
func NodeAffinity(added *corev1.NodeAffinity) (Plugin, error) {
	a := &affinity{
		mismatch: NotEver("node(s) didn't match Pod's node affinity/selector"),
		enforced: NotEver("node(s) didn't match scheduler-enforced node affinity"),
		conflict: NotEver("pod affinity terms conflict"),
	}
	if added != nil {
		var err error
		if r := added.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			if a.required, err = nodeaffinity.NewNodeSelector(r); err != nil {
				return Plugin{}, fmt.Errorf("parsing addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: %w", err)
			}
		}
		if p := added.PreferredDuringSchedulingIgnoredDuringExecution; len(p) > 0 {
			if a.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(p); err != nil {
				return Plugin{}, fmt.Errorf("parsing addedAffinity.preferredDuringSchedulingIgnoredDuringExecution: %w", err)
			}
		}
	}
	return Plugin{
		Name:    "NodeAffinity",
		Wakes:   []Wake{{On: NodeResource, Do: Add | NodeLabel, If: a.cameToMatch}},
		Prepare: a.prepare,
	}, nil
}

type affinity struct {
	required                     *nodeaffinity.NodeSelector
	preferred                    *nodeaffinity.PreferredSchedulingTerms
	mismatch, enforced, conflict *Verdict
}

func (a *affinity) prepare(_ *Snapshot, p *PodInfo) Prepared {
	out := Silent()
	var own *corev1.NodeAffinity
	if p.Pod.Spec.Affinity != nil {
		own = p.Pod.Spec.Affinity.NodeAffinity
	}
	if own != nil && own.RequiredDuringSchedulingIgnoredDuringExecution != nil || p.Pod.Spec.NodeSelector != nil || a.required != nil {
		wants := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
		out.Filter = func(n *NodeInfo) *Verdict {
			if a.required != nil && !a.required.Match(n.Node) {
				return a.enforced
			}
			// What cannot be parsed matches nothing, as it always has.
			if ok, _ := wants.Match(n.Node); !ok {
				return a.mismatch
			}
			return nil
		}
	}
	if own != nil && own.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		out.Nodes = named(own.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		if out.Nodes != nil && len(out.Nodes) == 0 {
			out.Nodes, out.Reject = nil, a.conflict
		}
	}
	var mine *nodeaffinity.PreferredSchedulingTerms
	if own != nil && own.PreferredDuringSchedulingIgnoredDuringExecution != nil {
		var err error
		if mine, err = nodeaffinity.NewPreferredSchedulingTerms(own.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			out.Reject = Failed(err)
			return out
		}
	}
	if mine == nil && a.preferred == nil {
		return out
	}
	out.Score = func(n *NodeInfo) (sum int64) {
		if a.preferred != nil {
			sum += a.preferred.Score(n.Node)
		}
		if mine != nil {
			sum += mine.Score(n.Node)
		}
		return sum
	}
	out.Normalize = func(_ []*NodeInfo, scores []int64) { spread(scores, false) }
	return out
}

// named are the names of the nodes that terms ask for, or nil if one of them asks for none by name.
func named(terms []corev1.NodeSelectorTerm) sets.Set[string] {
	var all sets.Set[string]
	for _, t := range terms {
		var names sets.Set[string]
		for _, r := range t.MatchFields {
			if r.Key != metav1.ObjectNameField || r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if names == nil {
				names = sets.New(r.Values...)
			} else {
				names = names.Intersection(sets.New(r.Values...))
			}
		}
		if names == nil {
			return nil
		}
		all = all.Union(names)
	}
	return all
}

// cameToMatch says that a node matches the pod, and is new or did not before.
func (a *affinity) cameToMatch(pod *corev1.Pod, was, is kind.Object) bool {
	if a.required != nil && !a.required.Match(is.(*corev1.Node)) {
		return false
	}
	wants := nodeaffinity.GetRequiredNodeAffinity(pod)
	matches := func(o kind.Object) bool {
		ok, err := wants.Match(o.(*corev1.Node))
		return ok || err != nil
	}
	return matches(is) && (was == nil || !matches(was))
}
