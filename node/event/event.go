// Package event says how the parts of the node agent record Kubernetes Events about Pods.
package event

import corev1 "k8s.io/api/core/v1"

// Recorder records Events about the Pods of the node, as the kubelet does.
type Recorder interface {
	Event(about Subject, eventType, reason, format string, args ...any)
}

// Subject is what an Event is about: a Pod, or the container of that name in it.
type Subject struct {
	Pod       *corev1.Pod
	Container string // empty for the Pod itself
}

// Pod returns a Pod as the subject of an Event.
func Pod(p *corev1.Pod) Subject { return Subject{Pod: p} }

// Container returns a container of a Pod as the subject of an Event.
func Container(p *corev1.Pod, name string) Subject { return Subject{Pod: p, Container: name} }
