package node

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/hop"
)

// podEvents records Events about Pods in the name of the kubelet, which people look for.
type podEvents struct{ *client.Recorder }

// Event records what happened to a Pod, or to a container of it.
func (e podEvents) Event(p *corev1.Pod, container, eventType, reason, format string, args ...any) {
	if p.Name == "" {
		return // an orphan, which has no object to tell about
	}
	about := p.DeepCopy()
	about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	e.EventAt(about, path(p, container), eventType, reason, format, args...)
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

// spent keeps what a step of a Pod's start took, beside the records of the writes about the Pod: its revision is that of the
// Pod which the step was done for.
func (a *Agent) spent(p *corev1.Pod, step string, begin time.Time) {
	if a.Record == nil {
		return
	}
	rev, err := strconv.ParseInt(p.ResourceVersion, 10, 64)
	if err != nil {
		return // a static Pod, of which the API has only an image
	}
	r := hop.Record{
		UID: p.UID, Rev: rev, Verb: step, Resource: "pods", Namespace: p.Namespace, Name: p.Name, User: "system:node:" + a.Name, Start: begin,
		CauseUID: p.UID, CauseRev: rev,
	}
	r.Took[hop.Node] = time.Since(begin)
	a.Record(r)
}
