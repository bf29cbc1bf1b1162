package podkind

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podCondition returns the condition of a type; nil if there is none.
func podCondition(s *corev1.PodStatus, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == name {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setPodCondition adds or replaces a condition. Its transition time changes with its status only.
func setPodCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	c.LastTransitionTime = metav1.Now()
	old := podCondition(s, c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
}

// isReadyOrDone tells whether a Pod is ready, or has ended as it should.
func isReadyOrDone(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded || isReady(p) }
