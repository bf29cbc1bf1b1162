package spread

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// hardConstraints returns the constraints that can have rejected a Pod. unknown reports that they cannot be parsed, so
// that any event may help.
func (t *topologySpread) hardConstraints(pod *corev1.Pod) (rules []constraint, unknown bool) {
	hard, _, _, err := t.constraintsOf(t.current, pod)
	return hard, err != nil
}

// podChangeHelps reports whether a change of a Pod on a node changes the counts of a rejected Pod.
func (t *topologySpread) podChangeHelps(pod *corev1.Pod, was, is kind.Object) bool {
	var set []labels.Set
	for _, o := range []kind.Object{was, is} {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		if !framework.HadNode(p) || p.Namespace != pod.Namespace {
			return false
		}
		set = append(set, p.Labels)
	}
	rules, unknown := t.hardConstraints(pod)
	if len(set) == 2 {
		return unknown || selectionChanged(rules, set[0], set[1])
	}
	return unknown || slices.ContainsFunc(rules, func(r constraint) bool { return len(set) > 0 && r.selector.Matches(set[0]) })
}

// ownChangeHelps reports whether a change of the rejected Pod itself may make it schedulable.
func (t *topologySpread) ownChangeHelps(pod *corev1.Pod, was, is kind.Object) bool {
	before, after := was.(*corev1.Pod), is.(*corev1.Pod)
	rules, unknown := t.hardConstraints(pod)
	if unknown {
		return true
	}
	if !equality.Semantic.DeepEqual(before.Spec.Tolerations, after.Spec.Tolerations) &&
		slices.ContainsFunc(rules, func(r constraint) bool { return r.honorTaints }) {
		return true
	}
	return selectionChanged(rules, before.Labels, after.Labels)
}

// selectionChanged reports whether a constraint selects one of two label sets but not the other.
func selectionChanged(rules []constraint, before, after labels.Set) bool {
	return !maps.Equal(before, after) &&
		slices.ContainsFunc(rules, func(r constraint) bool { return r.selector.Matches(before) != r.selector.Matches(after) })
}

// nodeChangeHelps reports whether a node was added to, removed from or moved within the topology of a rejected Pod.
func (t *topologySpread) nodeChangeHelps(pod *corev1.Pod, was, is kind.Object) bool {
	rules, unknown := t.hardConstraints(pod)
	if unknown {
		return true
	}
	in := func(o kind.Object) bool {
		n, ok := o.(*corev1.Node)
		return ok && !slices.ContainsFunc(rules, func(r constraint) bool { _, has := n.Labels[r.key]; return !has })
	}
	if was == nil || is == nil {
		return in(was) || in(is)
	}
	if in(was) != in(is) {
		return true
	}
	before, after := was.(*corev1.Node), is.(*corev1.Node)
	moved := slices.ContainsFunc(rules, func(r constraint) bool { return before.Labels[r.key] != after.Labels[r.key] })
	return in(is) && (moved || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints))
}
