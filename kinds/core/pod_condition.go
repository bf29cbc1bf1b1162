package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podCondition finds a condition.
func podCondition(s *corev1.PodStatus, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == name {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setPodCondition adds or replaces a condition. Its time is that of the last change of its status.
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
