package endpointslice

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/control/backend"
)

// group is the endpoints of a Service that have the same ports. Named ports may be other numbers on other pods.
type group struct {
	family    discoveryv1.AddressType
	ports     []discoveryv1.EndpointPort
	endpoints map[string]candidate // by identity
	order     []string             // of the pods
}

// candidate is an endpoint with its pod.
type candidate struct {
	discoveryv1.Endpoint
	pod *corev1.Pod
}

// desired are the endpoints that a Service should have, by their ports.
func desired(st state, family discoveryv1.AddressType) map[string]*group {
	out := map[string]*group{}
	for _, pod := range st.pods {
		if !backend.Listed(pod, true) {
			continue
		}
		ports := portsOf(st.service, pod)
		key := portsKey(ports)
		g := out[key]
		if g == nil {
			g = &group{family: family, ports: ports, endpoints: map[string]candidate{}}
			out[key] = g
		}
		node := st.node(pod.Spec.NodeName)
		if node == nil && !st.service.Spec.PublishNotReadyAddresses {
			continue // the node is about to be known, or gone and its pods with it
		}
		ep := endpoint(st.service, pod, node, family)
		if len(ep.Addresses) > 0 {
			id := identity(&ep)
			g.endpoints[id] = candidate{ep, pod}
			g.order = append(g.order, id)
		}
	}
	return out
}

// endpoint is a pod as a Service publishes it.
func endpoint(s *corev1.Service, p *corev1.Pod, node *corev1.Node, family discoveryv1.AddressType) discoveryv1.Endpoint {
	serving, terminating := backend.Ready(p), p.DeletionTimestamp != nil
	ep := discoveryv1.Endpoint{
		Addresses: backend.Addresses(p, family == discoveryv1.AddressTypeIPv6),
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
	if name := backend.Hostname(p, s); name != "" {
		ep.Hostname = &name
	}
	return ep
}

// portsOf are the ports of a Service on a pod. Those whose name the pod does not have are left out.
func portsOf(s *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if n, ok := backend.Port(p, port); ok {
			out = append(out, discoveryv1.EndpointPort{Name: new(port.Name), Port: &n, Protocol: new(port.Protocol), AppProtocol: port.AppProtocol})
		}
	}
	return out
}

// portsKey is the same for the same ports in any order.
func portsKey(ports []discoveryv1.EndpointPort) string {
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = fmt.Sprintf("%s %d %s %s", text(p.Name), number(p.Port), text((*string)(p.Protocol)), text(p.AppProtocol))
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

// text tells what is not said from what is empty.
func text(s *string) string {
	if s == nil {
		return "-"
	}
	return "=" + *s
}

func number(n *int32) int32 {
	if n == nil {
		return -1
	}
	return *n
}

// identity is what makes an endpoint the same as before.
func identity(e *discoveryv1.Endpoint) string {
	addresses := slices.Sorted(slices.Values(e.Addresses))
	target := ""
	if e.TargetRef != nil {
		target = e.TargetRef.Namespace + "/" + e.TargetRef.Name
	}
	return strings.Join(addresses, ",") + " " + text(e.Hostname) + " " + target
}

// same says that an endpoint needs no update. Hints are decided later.
func same(a, b *discoveryv1.Endpoint) bool {
	return text(a.NodeName) == text(b.NodeName) && text(a.Zone) == text(b.Zone) && said(a.Conditions.Ready) == said(b.Conditions.Ready) &&
		said(a.Conditions.Serving) == said(b.Conditions.Serving) && said(a.Conditions.Terminating) == said(b.Conditions.Terminating) &&
		sameTarget(a.TargetRef, b.TargetRef)
}

func sameTarget(a, b *corev1.ObjectReference) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return x == y
}

// said tells true, false and not said apart.
func said(b *bool) string {
	if b == nil {
		return ""
	}
	return fmt.Sprint(*b)
}
