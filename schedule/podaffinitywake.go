package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// podMatters says that a pod with a node came, went or changed its labels such that a rejected pod may fit.
func (a *podAffinity) podMatters(pod *corev1.Pod, was, is kind.Object) bool {
	before, _ := was.(*corev1.Pod)
	after, _ := is.(*corev1.Pod)
	if before != nil && !hadNode(before) || after != nil && !hadNode(after) {
		return false
	}
	own := ownWishes(a.now, NewPodInfo(pod))
	needs := func(p *corev1.Pod) bool { return len(own.need) > 0 && allMatch(own.need, p) }
	avoids := func(p *corev1.Pod) bool {
		return slices.ContainsFunc(own.avoid, func(t Term) bool { return t.Matches(p, nil) })
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
	spaces := spaceLabels(a.now, pod.Namespace)
	return slices.ContainsFunc(NewPodInfo(before).AntiAffinity, func(t Term) bool { return t.Matches(pod, spaces) })
}

// nodeMatters says that a node is new, or has moved in a topology that the rejected pod speaks of.
func (a *podAffinity) nodeMatters(pod *corev1.Pod, was, is kind.Object) bool {
	p := NewPodInfo(pod)
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
		// A node without the key takes any pod, so getting one does not help.
		key := p.AntiAffinity[i].TopologyKey
		value, had := was.GetLabels()[key]
		if now, has := after.Labels[key]; had && (!has || now != value) {
			return true
		}
	}
	return false
}
