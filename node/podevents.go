package node

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/node/event"
	"proa.dev/node/podtrace"
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

// traceReceived begins the record of a Pod that the API has sent for the first time; it ends when the Pod's worker has it. A Pod
// that the agent has taken care of before, and finds again after a restart, is not recorded.
func (a *Agent) traceReceived(p *corev1.Pod) *podtrace.Work {
	if p.Status.StartTime != nil || p.DeletionTimestamp != nil {
		return nil
	}
	return a.trace.Prepare(p, hop.Receive, time.Now())
}

// TraceNetwork begins the record of a Pod's network, which the runtime asks for while it makes the sandbox. The function that
// it returns ends the record.
func (a *Agent) TraceNetwork(uid string) (done func(error)) {
	l, found := a.pods.Find(types.UID(uid))
	if !found {
		return func(error) {}
	}
	traced := a.trace.Begin(l.Pod, hop.PodNetwork)
	return func(err error) {
		if err != nil {
			traced.Abort(err.Error())
			return
		}
		traced.Done()
	}
}

// HasPod reports whether a Pod of the node is in a namespace and has an address, by what the runtime says.
func (a *Agent) HasPod(uid types.UID, namespace string, addr netip.Addr) bool {
	l, found := a.pods.Find(uid)
	if !found || l.Pod.Namespace != namespace {
		return false
	}
	if l.Pod.Spec.HostNetwork {
		return slices.ContainsFunc(l.Pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == addr.String() })
	}
	return l.Facts != nil && slices.Contains(l.Facts.IPs(), addr)
}
