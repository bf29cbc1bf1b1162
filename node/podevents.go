package node

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/node/event"
)

// podEvents records Events about Pods with the kubelet as their source.
type podEvents struct{ *client.Recorder }

// Event records an Event about a Pod or a container.
func (e podEvents) Event(about event.Subject, eventType, reason, format string, args ...any) {
	if about.Pod.Name == "" {
		return // an orphaned sandbox, which has no object in the API
	}
	p := about.Pod.DeepCopy()
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	e.EventAt(client.ObjectField{Object: p, Field: fieldPath(p, about.Container)}, eventType, reason, format, args...)
}

// fieldPath returns the field path of a container, for the involvedObject of an Event.
func fieldPath(p *corev1.Pod, name string) string {
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

// recordStep records how long a step of a Pod's start took, beside the records of the writes about the Pod. The revision of
// the record is that of the Pod for which the step was done.
func (a *Agent) recordStep(p *corev1.Pod, step string, begin time.Time) {
	if a.Record == nil {
		return
	}
	rev, err := strconv.ParseInt(p.ResourceVersion, 10, 64)
	if err != nil {
		return // a static Pod, of which the API has only a mirror
	}
	r := hop.Record{
		UID: p.UID, Rev: rev, Verb: step, Resource: "pods", Namespace: p.Namespace, Name: p.Name, User: "system:node:" + a.Name,
		Start:    begin,
		CauseUID: p.UID, CauseRev: rev,
	}
	r.Took[hop.Node] = time.Since(begin)
	a.Record(r)
}
