// Package servicebackends finds the pods that a Service selects, and the Services that select a pod. The controllers of
// Endpoints and EndpointSlices share it, so that they agree on what they publish. Its indexes keep the cost of a change of
// one pod proportional to its own Services, however many pods and Services share the namespace.
package servicebackends

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
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/gr"
)

// isUnshared reports whether a label is one that few pods have in common, or by which Services never select. Such labels are
// not indexed, because that would cost a map for each pod.
func isUnshared(key string) bool {
	switch key {
	case "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index",
		"batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid", "job-name", "controller-uid",
		"controller-revision-hash", "pod-template-hash", "pod-template-generation":
		return true
	}
	return false
}

func labelKey(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// ByLabel indexes pods by their namespace and each of their labels.
func ByLabel() client.Index {
	return client.Index{Name: "label", Values: func(o kind.Object) []string {
		out := make([]string, 0, len(o.GetLabels()))
		for key, value := range o.GetLabels() {
			if !isUnshared(key) {
				out = append(out, labelKey(o.GetNamespace(), key, value))
			}
		}
		return out
	}}
}

// BySelector indexes Services by their namespace and the first label of their selector.
func BySelector() client.Index {
	return client.Index{Name: "selector", Values: func(o kind.Object) []string {
		s, ok := o.(*corev1.Service)
		if !ok || len(s.Spec.Selector) == 0 {
			return nil
		}
		key := slices.Min(slices.Collect(maps.Keys(s.Spec.Selector)))
		return []string{labelKey(s.Namespace, key, s.Spec.Selector[key])}
	}}
}

// ByService indexes EndpointSlices by the namespace and name of their Service.
func ByService() client.Index {
	return client.Index{Name: "service", Values: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// Selects reports whether a Service selects pods with these labels. One without a selector selects none.
func Selects(s *corev1.Service, labels map[string]string) bool {
	for key, value := range s.Spec.Selector {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return len(s.Spec.Selector) > 0
}

// Pods returns the pods that a Service selects, in the order of their names.
func Pods(c *control.Cluster, s *corev1.Service) []*corev1.Pod {
	candidates := control.List[*corev1.Pod](c, gr.Pods, s.Namespace)
	for _, key := range slices.Sorted(maps.Keys(s.Spec.Selector)) {
		if !isUnshared(key) {
			candidates = control.By[*corev1.Pod](c, gr.Pods, ByLabel(), labelKey(s.Namespace, key, s.Spec.Selector[key]))
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

// Services yields the keys of the Services that select a pod.
func Services(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for key, value := range o.GetLabels() {
			for s := range control.By[*corev1.Service](c, gr.Services, BySelector(), labelKey(o.GetNamespace(), key, value)) {
				if Selects(s, o.GetLabels()) && !yield(control.KeyOf(s)) {
					return
				}
			}
		}
	}
}

// ChangesEndpoint reports whether a change of a pod may change its endpoint.
func ChangesEndpoint(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	was, ok := old.(*corev1.Pod)
	pod, is := now.(*corev1.Pod)
	if !ok || !is {
		return true
	}
	return workload.IsReady(was) != workload.IsReady(pod) || was.UID != pod.UID ||
		was.DeletionTimestamp.IsZero() != pod.DeletionTimestamp.IsZero() ||
		workload.IsTerminal(was) != workload.IsTerminal(pod) || was.Spec.NodeName != pod.Spec.NodeName ||
		was.Status.PodIP != pod.Status.PodIP ||
		!slices.Equal(was.Status.PodIPs, pod.Status.PodIPs) || !maps.Equal(was.Labels, pod.Labels) ||
		was.Spec.Hostname != pod.Spec.Hostname || was.Spec.Subdomain != pod.Spec.Subdomain
}

// HasEndpoint reports whether a pod has an endpoint: it has an address, and its containers have not all ended. Whether pods that
// are being deleted count is up to the caller.
func HasEndpoint(p *corev1.Pod, evenDeleted bool) bool {
	return !workload.IsTerminal(p) && (p.Status.PodIP != "" || len(p.Status.PodIPs) > 0) && (evenDeleted || p.DeletionTimestamp.IsZero())
}

// Hostname returns the DNS name of a pod below its Service, or empty if it has none.
func Hostname(p *corev1.Pod, s *corev1.Service) string {
	if p.Spec.Subdomain == s.Name && p.Namespace == s.Namespace {
		return p.Spec.Hostname
	}
	return ""
}

// Ports returns a function that tells the number of the port on a pod to which a port of a Service leads; false if the pod has no such
// port. The ports of a pod are looked at once: a pod and a Service may each have ten thousand.
func Ports(p *corev1.Pod) func(*corev1.ServicePort) (int32, bool) {
	type named struct {
		name     string
		protocol corev1.Protocol
	}
	var numbers map[named]int32
	add := func(c *corev1.Container) {
		for _, have := range c.Ports {
			if at := (named{have.Name, have.Protocol}); have.Name != "" {
				if _, known := numbers[at]; !known {
					numbers[at] = have.ContainerPort
				}
			}
		}
	}
	return func(port *corev1.ServicePort) (int32, bool) {
		if port.TargetPort.Type == intstr.Int {
			return port.TargetPort.IntVal, true
		}
		if numbers == nil {
			numbers = map[named]int32{}
			for i := range p.Spec.Containers {
				add(&p.Spec.Containers[i])
			}
			for i := range p.Spec.InitContainers { // sidecars only
				if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
					add(c)
				}
			}
		}
		n, ok := numbers[named{port.TargetPort.StrVal, port.Protocol}]
		return n, ok
	}
}

// Addresses returns the addresses of a pod in one IP family, in canonical form. It leaves out addresses that the API rejects
// in endpoints, such as loopback: the node writes them, and one of them would make the whole slice of the Service invalid.
func Addresses(p *corev1.Pod, v6 bool) []string {
	out := []string{}
	for _, have := range p.Status.PodIPs {
		if ip := netutils.ParseIPSloppy(have.IP); ip != nil && netutils.IsIPv6(ip) == v6 && len(check.EndpointIP(have.IP, nil)) == 0 {
			out = append(out, ip.String())
		}
	}
	return out
}

// IsHeadless reports whether a Service has no cluster IP.
func IsHeadless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone
}

// Labels returns a copy of the labels of a Service for its Endpoints and EndpointSlices, which tell whether it is headless.
func Labels(s *corev1.Service) map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	if IsHeadless(s) {
		out[corev1.IsHeadlessService] = ""
	}
	return out
}

// HasSelector reports whether the endpoints of a Service are the pods it selects. Others are written by users.
func HasSelector(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && len(s.Spec.Selector) > 0
}
