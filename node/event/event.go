// Package event says how the parts of the node agent record Kubernetes Events.
package event

import corev1 "k8s.io/api/core/v1"

// Recorder records Events about the Pods of the node, as the kubelet does.
type Recorder interface {
	// Event records what happened to a Pod, or to the container of that name if it is not empty.
	Event(p *corev1.Pod, container, eventType, reason, format string, args ...any)
}
