package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
)

// teller says what happens to Pods, as Events of the kubelet: that is the name people look for.
type teller struct{ *client.Recorder }

// Event says what happened to a Pod, or to a container of it.
func (t teller) Event(p *corev1.Pod, container, eventType, reason, format string, args ...any) {
	if p.Name == "" {
		return // an orphan, which has no object to tell about
	}
	about := p.DeepCopy()
	about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	t.EventAt(about, path(p, container), eventType, reason, format, args...)
}

// path is where a container stands in the spec.
func path(p *corev1.Pod, name string) string {
	if name == "" {
		return ""
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return fmt.Sprintf("spec.initContainers{%s}", name)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return fmt.Sprintf("spec.ephemeralContainers{%s}", name)
		}
	}
	return fmt.Sprintf("spec.containers{%s}", name)
}
