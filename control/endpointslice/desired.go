package endpointslice

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/control/lib/servicebackends"
	"proa.dev/control/lib/workload"
)

// group has the endpoints of a Service with the same ports. A named port may have different numbers on different pods.
type group struct {
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints map[identity]*candidate
	order     []identity // in the order of the pods
}

// candidate is an endpoint with its pod.
type candidate struct {
	discoveryv1.Endpoint
	pod *corev1.Pod
}

// desired returns the endpoints that a Service should have, grouped by their ports.
func desired(st state, family discoveryv1.AddressType) map[string]*group {
	out := map[string]*group{}
	named := slices.ContainsFunc(st.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.TargetPort.Type == intstr.String })
	size := len(st.pods)
	if named { // there may be many groups
		size = 0
	}
	var ports []discoveryv1.EndpointPort
	var key string
	for _, pod := range st.pods {
		if !servicebackends.HasEndpoint(pod, true) {
			continue
		}
		if named || ports == nil { // port numbers are the same for all pods
			ports = portsOf(st.service, pod)
			key = portsKey(ports)
		}
		g := out[key]
		if g == nil {
			g = &group{family: family, ports: ports, endpoints: make(map[identity]*candidate, size), order: make([]identity, 0, size)}
			out[key] = g
		}
		node := st.nodeNamed(pod.Spec.NodeName)
		if node == nil && !st.service.Spec.PublishNotReadyAddresses {
			continue // the view does not show the node yet, or it was deleted and its pods will be
		}
		ep := endpoint(st.service, pod, node, family)
		if len(ep.Addresses) > 0 {
			id := identify(&ep)
			g.endpoints[id] = &candidate{ep, pod}
			g.order = append(g.order, id)
		}
	}
	return out
}

// endpoint returns the endpoint of a pod for a Service.
func endpoint(s *corev1.Service, p *corev1.Pod, node *corev1.Node, family discoveryv1.AddressType) discoveryv1.Endpoint {
	serving, terminating := workload.IsReady(p), p.DeletionTimestamp != nil
	ep := discoveryv1.Endpoint{
		Addresses: servicebackends.Addresses(p, family == discoveryv1.AddressTypeIPv6),
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(s.Spec.PublishNotReadyAddresses || (serving && !terminating)), Serving: &serving, Terminating: &terminating,
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}
	if p.Spec.NodeName != "" {
		ep.NodeName = new(p.Spec.NodeName)
	}
	if node != nil && zoneOf(node) != "" {
		ep.Zone = new(zoneOf(node))
	}
	if name := servicebackends.Hostname(p, s); name != "" {
		ep.Hostname = &name
	}
	return ep
}

// portsOf returns the ports of a Service on a pod. Named ports that the pod does not have are left out.
func portsOf(s *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	numberOf := servicebackends.Ports(p)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if n, ok := numberOf(port); ok {
			out = append(out, discoveryv1.EndpointPort{Name: new(port.Name), Port: &n, Protocol: new(port.Protocol),
				AppProtocol: port.AppProtocol})
		}
	}
	return out
}

// portsKey returns a key that is equal for the same ports in any order.
func portsKey(ports []discoveryv1.EndpointPort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%s %d %s %s", optional(p.Name), optionalNumber(p.Port), optional((*string)(p.Protocol)),
			optional(p.AppProtocol))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

// optional formats an optional string so that nil and empty differ.
func optional(s *string) string {
	if s == nil {
		return "-"
	}
	return "=" + *s
}

func optionalNumber(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// identity identifies an endpoint across changes of its conditions.
type identity struct{ addresses, hostname, namespace, name string }

func identify(e *discoveryv1.Endpoint) (id identity) {
	if len(e.Addresses) == 1 {
		id.addresses = e.Addresses[0]
	} else {
		id.addresses = strings.Join(slices.Sorted(slices.Values(e.Addresses)), ",")
	}
	if e.Hostname != nil {
		id.hostname = *e.Hostname
	}
	if e.TargetRef != nil {
		id.namespace, id.name = e.TargetRef.Namespace, e.TargetRef.Name
	}
	return id
}

// isSameEndpoint reports whether an endpoint needs no update. It ignores hints, which are decided later.
func isSameEndpoint(a, b *discoveryv1.Endpoint) bool {
	return equalPointers(a.NodeName, b.NodeName) && equalPointers(a.Zone, b.Zone) &&
		equalPointers(a.Conditions.Ready, b.Conditions.Ready) &&
		equalPointers(a.Conditions.Serving, b.Conditions.Serving) && equalPointers(a.Conditions.Terminating, b.Conditions.Terminating) &&
		isSameTarget(a.TargetRef, b.TargetRef)
}

func isSameTarget(a, b *corev1.ObjectReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return x == y
}

// equalPointers compares the values of pointers that may be nil.
func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
