package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
)

// hardRules are those that can have rejected a pod. unknown says that they cannot be found out, so that anything may help.
func (t *topology) hardRules(pod *corev1.Pod) (rules []spreadRule, unknown bool) {
	hard, _, _, err := t.rules(t.now, pod)
	return hard, err != nil
}

// podMatters says that a pod with a node changed the counts of a rejected pod.
func (t *topology) podMatters(pod *corev1.Pod, was, is kind.Object) bool {
	var set []labels.Set
	for _, o := range []kind.Object{was, is} {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		if !hadNode(p) || p.Namespace != pod.Namespace {
			return false
		}
		set = append(set, p.Labels)
	}
	rules, unknown := t.hardRules(pod)
	if len(set) == 2 {
		return unknown || selectedAnew(rules, set[0], set[1])
	}
	return unknown || slices.ContainsFunc(rules, func(r spreadRule) bool { return len(set) > 0 && r.selector.Matches(set[0]) })
}

// selfMatters says that the rejected pod itself has changed in a way that may help.
func (t *topology) selfMatters(pod *corev1.Pod, was, is kind.Object) bool {
	before, after := was.(*corev1.Pod), is.(*corev1.Pod)
	rules, unknown := t.hardRules(pod)
	if unknown {
		return true
	}
	if !equality.Semantic.DeepEqual(before.Spec.Tolerations, after.Spec.Tolerations) &&
		slices.ContainsFunc(rules, func(r spreadRule) bool { return r.taints }) {
		return true
	}
	return selectedAnew(rules, before.Labels, after.Labels)
}

// selectedAnew says that a rule is about a pod with one set of labels, and not with the other.
func selectedAnew(rules []spreadRule, before, after labels.Set) bool {
	return !maps.Equal(before, after) &&
		slices.ContainsFunc(rules, func(r spreadRule) bool { return r.selector.Matches(before) != r.selector.Matches(after) })
}

// nodeMatters says that a node came, went or moved in the topology of a rejected pod.
func (t *topology) nodeMatters(pod *corev1.Pod, was, is kind.Object) bool {
	rules, unknown := t.hardRules(pod)
	if unknown {
		return true
	}
	in := func(o kind.Object) bool {
		n, ok := o.(*corev1.Node)
		return ok && !slices.ContainsFunc(rules, func(r spreadRule) bool { _, has := n.Labels[r.key]; return !has })
	}
	if was == nil || is == nil {
		return in(was) || in(is)
	}
	if in(was) != in(is) {
		return true
	}
	before, after := was.(*corev1.Node), is.(*corev1.Node)
	moved := slices.ContainsFunc(rules, func(r spreadRule) bool { return before.Labels[r.key] != after.Labels[r.key] })
	return in(is) && (moved || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints))
}
