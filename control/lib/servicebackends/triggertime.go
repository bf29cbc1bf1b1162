package servicebackends

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/lib/workload"
)

// TriggerTime returns the time for the annotation endpoints.kubernetes.io/last-change-trigger-time, by which the delay until an
// endpoint is published can be measured: the earliest time at which one of the changed pods became ready or unready or, for
// the first publication, when the Service was created. It is zero when there is no such time.
func TriggerTime(s *corev1.Service, first bool, changed []*corev1.Pod) time.Time {
	if first {
		return s.CreationTimestamp.Time
	}
	var at time.Time
	for _, p := range changed {
		if c := workload.Condition(p, corev1.PodReady); c != nil && !c.LastTransitionTime.IsZero() &&
			(at.IsZero() || c.LastTransitionTime.Time.Before(at)) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// AnnotateTriggerTime writes the time of a cause into annotations, which may be nil, and returns them. A zero cause removes it.
func AnnotateTriggerTime(annotations map[string]string, cause time.Time) map[string]string {
	if cause.IsZero() {
		delete(annotations, corev1.EndpointsLastChangeTriggerTime)
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[corev1.EndpointsLastChangeTriggerTime] = cause.UTC().Format(time.RFC3339Nano)
	return annotations
}
