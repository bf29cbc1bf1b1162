// Package affinity has the plugins NodeAffinity and InterPodAffinity, which evaluate the affinity of Pods to nodes and
// to other Pods.
package affinity

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// newNodeAffinity returns the plugin NodeAffinity, which rejects nodes that do not match the node selector and node
// affinity of the Pod, or the affinity added by the configuration.
func newNodeAffinity(added *corev1.NodeAffinity) (framework.Plugin, error) {
	a := &nodeAffinity{
		mismatch: framework.Unresolvable("node(s) didn't match Pod's node affinity/selector"),
		enforced: framework.Unresolvable("node(s) didn't match scheduler-enforced node affinity"),
		conflict: framework.Unresolvable("pod affinity terms conflict"),
	}
	if added != nil {
		var err error
		if r := added.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			if a.required, err = nodeaffinity.NewNodeSelector(r); err != nil {
				return framework.Plugin{}, fmt.Errorf("parsing addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: %w", err)
			}
		}
		if p := added.PreferredDuringSchedulingIgnoredDuringExecution; len(p) > 0 {
			if a.preferred, err = nodeaffinity.NewPreferredSchedulingTerms(p); err != nil {
				return framework.Plugin{}, fmt.Errorf("parsing addedAffinity.preferredDuringSchedulingIgnoredDuringExecution: %w", err)
			}
		}
	}
	return framework.Plugin{
		Name:          "NodeAffinity",
		QueueingHints: []framework.QueueingHint{{On: framework.NodeResource, Do: framework.Add | framework.NodeLabel, If: a.beganToMatch}},
		Prepare:       a.prepare,
	}, nil
}

type nodeAffinity struct {
	required                     *nodeaffinity.NodeSelector
	preferred                    *nodeaffinity.PreferredSchedulingTerms
	mismatch, enforced, conflict *framework.Rejection
}

func (a *nodeAffinity) prepare(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	out := framework.Skip()
	var own *corev1.NodeAffinity
	if p.Pod.Spec.Affinity != nil {
		own = p.Pod.Spec.Affinity.NodeAffinity
	}
	if own != nil && own.RequiredDuringSchedulingIgnoredDuringExecution != nil || p.Pod.Spec.NodeSelector != nil || a.required != nil {
		wants := nodeaffinity.GetRequiredNodeAffinity(p.Pod)
		out.Filter = func(n *framework.NodeInfo) *framework.Rejection {
			if a.required != nil && !a.required.Match(n.Node) {
				return a.enforced
			}
			// A selector that cannot be parsed matches nothing, as upstream.
			if ok, _ := wants.Match(n.Node); !ok {
				return a.mismatch
			}
			return nil
		}
	}
	if own != nil && own.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		out.Nodes = nodeNames(own.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		if out.Nodes != nil && len(out.Nodes) == 0 {
			out.Nodes, out.Reject = nil, a.conflict
		}
	}
	var mine *nodeaffinity.PreferredSchedulingTerms
	if own != nil && own.PreferredDuringSchedulingIgnoredDuringExecution != nil {
		var err error
		if mine, err = nodeaffinity.NewPreferredSchedulingTerms(own.PreferredDuringSchedulingIgnoredDuringExecution); err != nil {
			out.Reject = framework.Failed(err)
			return out
		}
	}
	if mine == nil && a.preferred == nil {
		return out
	}
	out.Score = func(n *framework.NodeInfo) (sum int64) {
		if a.preferred != nil {
			sum += a.preferred.Score(n.Node)
		}
		if mine != nil {
			sum += mine.Score(n.Node)
		}
		return sum
	}
	out.Normalize = func(_ []*framework.NodeInfo, scores []int64) { framework.NormalizeScores(scores, false) }
	return out
}

// nodeNames returns the names of the nodes that the terms select by name, or nil if a term does not select by name.
func nodeNames(terms []corev1.NodeSelectorTerm) sets.Set[string] {
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

// beganToMatch reports whether a node matches the Pod, and is new or did not match before.
func (a *nodeAffinity) beganToMatch(pod *corev1.Pod, was, is kind.Object) bool {
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

// NewNodeAffinity returns the plugin NodeAffinity.
func NewNodeAffinity(_ framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.NodeAffinityArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	return newNodeAffinity(args.AddedAffinity)
}
