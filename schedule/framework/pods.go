package framework

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/placement"
)

// Tolerates reports whether one of the tolerations tolerates the taint.
func Tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		if placement.Tolerates(&tolerations[i], taint) {
			return true
		}
	}
	return false
}

// HadNode reports whether a removed Pod was on a node or was nominated for one, so that its removal frees resources.
func HadNode(o kind.Object) bool {
	p, ok := o.(*corev1.Pod)
	return !ok || p.Spec.NodeName != "" || p.Status.NominatedNodeName != ""
}

// HasEnded reports whether a Pod has succeeded or failed, so that it no longer needs resources.
func HasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsOlder reports whether an object from a view is older than what was written, so that the view has yet to catch up.
func IsOlder(seen, written kind.Object) bool {
	a, _ := strconv.ParseUint(seen.GetResourceVersion(), 10, 64)
	b, _ := strconv.ParseUint(written.GetResourceVersion(), 10, 64)
	return a < b
}

// SetPodCondition sets a condition in a status. It returns false if the condition is unchanged.
func SetPodCondition(s *corev1.PodStatus, c corev1.PodCondition) bool {
	c.LastTransitionTime = metav1.Now()
	i := slices.IndexFunc(s.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return true
	}
	old := s.Conditions[i]
	c.LastProbeTime = old.LastProbeTime
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.Conditions[i] = c
	return old != c
}
