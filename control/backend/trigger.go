package backend

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Cause is the time of the change that a published change tells of, as people who measure the delay want it: the earliest
// time at which one of the pods became ready or unready, and for what is published first the birth of the Service. It is
// zero when nothing of that kind happened.
func Cause(s *corev1.Service, first bool, changed []*corev1.Pod) time.Time {
	if first {
		return s.CreationTimestamp.Time
	}
	var at time.Time
	for _, p := range changed {
		if c := readiness(p); c != nil && !c.LastTransitionTime.IsZero() && (at.IsZero() || c.LastTransitionTime.Time.Before(at)) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

// Stamp notes a cause among annotations, which may be nil, and returns them.
func Stamp(annotations map[string]string, cause time.Time) map[string]string {
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
