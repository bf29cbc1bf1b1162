package affinity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// podChangeHelps reports whether a Pod on a node was added, removed or relabelled such that a rejected Pod may become
// schedulable.
func (a *podAffinity) podChangeHelps(pod *corev1.Pod, was, is kind.Object) bool {
	before, _ := was.(*corev1.Pod)
	after, _ := is.(*corev1.Pod)
	if before != nil && !framework.HadNode(before) || after != nil && !framework.HadNode(after) {
		return false
	}
	own := termsOf(a.current, framework.NewPodInfo(pod))
	needs := func(p *corev1.Pod) bool { return len(own.affinity) > 0 && matchAll(own.affinity, p) }
	avoids := func(p *corev1.Pod) bool {
		return slices.ContainsFunc(own.antiAffinity, func(t framework.AffinityTerm) bool { return t.Matches(p, nil) })
	}
	switch {
	case before != nil && after != nil:
		return !needs(before) && needs(after) || avoids(before) && !avoids(after)
	case after != nil:
		return needs(after)
	case before == nil:
		return true
	case avoids(before):
		return true
	}
	spaces := labelsOfNamespace(a.current, pod.Namespace)
	return slices.ContainsFunc(framework.NewPodInfo(before).AntiAffinity,
		func(t framework.AffinityTerm) bool { return t.Matches(pod, spaces) })
}

// nodeChangeHelps reports whether a node is new, or its label for a topology key of the rejected Pod has changed.
func (a *podAffinity) nodeChangeHelps(pod *corev1.Pod, was, is kind.Object) bool {
	p := framework.NewPodInfo(pod)
	after := is.(*corev1.Node)
	for i := range p.Affinity {
		key := p.Affinity[i].TopologyKey
		value, has := after.Labels[key]
		if !has {
			continue
		}
		if was == nil || was.GetLabels()[key] != value {
			return true
		}
		if _, had := was.GetLabels()[key]; !had {
			return true
		}
	}
	for i := range p.AntiAffinity {
		if was == nil {
			return true
		}
		// A node without the key is feasible for any Pod, so adding the label does not help.
		key := p.AntiAffinity[i].TopologyKey
		value, had := was.GetLabels()[key]
		if now, has := after.Labels[key]; had && (!has || now != value) {
			return true
		}
	}
	return false
}
