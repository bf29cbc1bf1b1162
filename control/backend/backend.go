// Package backend says which pods stand behind a Service, and which Services a pod stands behind. Three loops publish that
// in two forms, and must agree. The indexes make a change of one pod cost what its Services cost, however many pods and
// Services share its namespace.
package backend

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	netutils "k8s.io/utils/net"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/check"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// unshared are labels that few pods have in common, or that never select pods for a Service. Indexing them would cost a
// map for each pod.
func unshared(key string) bool {
	switch key {
	case "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index",
		"batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid", "job-name", "controller-uid",
		"controller-revision-hash", "pod-template-hash", "pod-template-generation":
		return true
	}
	return false
}

func pair(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// ByLabel finds pods by their namespace and one label.
func ByLabel() client.Index {
	return client.Index{Name: "label", Of: func(o kind.Object) []string {
		out := make([]string, 0, len(o.GetLabels()))
		for key, value := range o.GetLabels() {
			if !unshared(key) {
				out = append(out, pair(o.GetNamespace(), key, value))
			}
		}
		return out
	}}
}

// BySelector finds Services by their namespace and the first label they select by.
func BySelector() client.Index {
	return client.Index{Name: "selector", Of: func(o kind.Object) []string {
		s, ok := o.(*corev1.Service)
		if !ok || len(s.Spec.Selector) == 0 {
			return nil
		}
		key := slices.Min(slices.Collect(maps.Keys(s.Spec.Selector)))
		return []string{pair(s.Namespace, key, s.Spec.Selector[key])}
	}}
}

// ByService finds EndpointSlices by their namespace and Service.
func ByService() client.Index {
	return client.Index{Name: "service", Of: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// Selects says that a Service selects pods with these labels. One without a selector selects none.
func Selects(s *corev1.Service, labels map[string]string) bool {
	for key, value := range s.Spec.Selector {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return len(s.Spec.Selector) > 0
}

// Pods are those that a Service selects, in the order of their names.
func Pods(c *control.Cluster, s *corev1.Service) []*corev1.Pod {
	candidates := control.List[*corev1.Pod](c, gr.Pods, s.Namespace)
	for _, key := range slices.Sorted(maps.Keys(s.Spec.Selector)) {
		if !unshared(key) {
			candidates = control.By[*corev1.Pod](c, gr.Pods, ByLabel(), pair(s.Namespace, key, s.Spec.Selector[key]))
			break
		}
	}
	var out []*corev1.Pod
	for p := range candidates {
		if Selects(s, p.Labels) {
			out = append(out, p)
		}
	}
	return out
}

// Services are the keys of the Services that a pod stands behind.
func Services(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for key, value := range o.GetLabels() {
			for s := range control.By[*corev1.Service](c, gr.Services, BySelector(), pair(o.GetNamespace(), key, value)) {
				if Selects(s, o.GetLabels()) && !yield(control.KeyOf(s)) {
					return
				}
			}
		}
	}
}

// Moved says that a change of a pod may change what is published about it.
func Moved(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	was, ok := old.(*corev1.Pod)
	pod, is := now.(*corev1.Pod)
	if !ok || !is {
		return true
	}
	return Ready(was) != Ready(pod) || was.UID != pod.UID || was.DeletionTimestamp.IsZero() != pod.DeletionTimestamp.IsZero() ||
		ended(was) != ended(pod) || was.Spec.NodeName != pod.Spec.NodeName || was.Status.PodIP != pod.Status.PodIP ||
		!slices.Equal(was.Status.PodIPs, pod.Status.PodIPs) || !maps.Equal(was.Labels, pod.Labels) ||
		was.Spec.Hostname != pod.Spec.Hostname || was.Spec.Subdomain != pod.Spec.Subdomain
}

// Ready says that a pod can serve.
func Ready(p *corev1.Pod) bool {
	c := readiness(p)
	return c != nil && c.Status == corev1.ConditionTrue
}

func readiness(p *corev1.Pod) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Listed says that a pod is published at all: it has an address and has not ended. Pods that are being deleted are
// wanted by some.
func Listed(p *corev1.Pod, evenDeleted bool) bool {
	return !ended(p) && (p.Status.PodIP != "" || len(p.Status.PodIPs) > 0) && (evenDeleted || p.DeletionTimestamp.IsZero())
}

// Hostname is the name of a pod below its Service, or empty.
func Hostname(p *corev1.Pod, s *corev1.Service) string {
	if p.Spec.Subdomain == s.Name && p.Namespace == s.Namespace {
		return p.Spec.Hostname
	}
	return ""
}

// Port is the number behind a port of a Service on a pod.
func Port(p *corev1.Pod, port *corev1.ServicePort) (int32, bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	find := func(c *corev1.Container) (int32, bool) {
		for _, have := range c.Ports {
			if have.Name == port.TargetPort.StrVal && have.Protocol == port.Protocol {
				return have.ContainerPort, true
			}
		}
		return 0, false
	}
	for i := range p.Spec.Containers {
		if n, ok := find(&p.Spec.Containers[i]); ok {
			return n, true
		}
	}
	for i := range p.Spec.InitContainers { // those that run beside the others
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		if n, ok := find(c); ok {
			return n, true
		}
	}
	return 0, false
}

// Addresses are those of a pod in a family, in the usual form. Left out is what no endpoint may be: a node says which addresses its
// pods have, and with one that the API refuses, none of the other endpoints of a Service could be written any more.
func Addresses(p *corev1.Pod, v6 bool) []string {
	out := []string{}
	for _, have := range p.Status.PodIPs {
		if ip := netutils.ParseIPSloppy(have.IP); ip != nil && netutils.IsIPv6(ip) == v6 && len(check.EndpointIP(have.IP, nil)) == 0 {
			out = append(out, ip.String())
		}
	}
	return out
}

// Headless says that a Service has no address of its own.
func Headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone
}

// Published says that the addresses of a Service are made from pods. Others are made by whoever made the Service.
func Published(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && len(s.Spec.Selector) > 0
}
