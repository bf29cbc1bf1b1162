package gateway

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// The labels of what is made for a Gateway.
const (
	labelGateway = gw.GatewayNameLabelKey
	labelClass   = "gateway.networking.k8s.io/gateway-class-name"
	managedBy    = "gateway.proa.dev"
)

// serviceName is the name of the Service of a Gateway.
func serviceName(g *gw.Gateway) string {
	return bounded(g.Name + "-" + string(g.Spec.GatewayClassName))
}

// bounded is a name that a label and a Service can have: one that is too long ends with a hash instead.
func bounded(name string) string {
	const longest = 63
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%x", name[:longest-9], sum[:4])
}

// portsOf are the ports of a Gateway that are served, and which of them are for TLS.
func portsOf(g *gateway) map[int32]bool {
	out := map[int32]bool{}
	for _, l := range g.listeners {
		if l.serves() {
			out[l.Port] = l.isSecure()
		}
	}
	return out
}

func portName(number int32) string { return fmt.Sprintf("port-%d", number) }

// serviceFor is the Service that gives a Gateway its address; nil for a Gateway that needs none.
func serviceFor(g *gateway) *corev1.Service {
	ports := portsOf(g)
	if len(ports) == 0 {
		return nil
	}
	svc := &corev1.Service{ObjectMeta: metaFor(g, serviceName(g.Gateway))}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal // clients keep their addresses
	svc.Spec.AllocateLoadBalancerNodePorts = new(false)
	for _, number := range slices.Sorted(maps.Keys(ports)) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: portName(number), Port: number, Protocol: corev1.ProtocolTCP})
	}
	return svc
}

// metaFor is the metadata of what belongs to a Gateway.
func metaFor(g *gateway, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: g.Namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	if i := g.Spec.Infrastructure; i != nil {
		for k, v := range i.Labels {
			m.Labels[string(k)] = string(v)
		}
		for k, v := range i.Annotations {
			m.Annotations[string(k)] = string(v)
		}
	}
	m.Labels[labelGateway] = bounded(g.Name)
	m.Labels[labelClass] = bounded(string(g.Spec.GatewayClassName))
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: gw.GroupVersion.String(), Kind: kindGateway, Name: g.Name, UID: g.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	return m
}

// sliceFor is the EndpointSlice that leads the Service of a Gateway to the ports of the proxy on this node.
func sliceFor(g *gateway, node *corev1.Node, address netip.Addr, open map[int32]int) *discoveryv1.EndpointSlice {
	service := serviceName(g.Gateway)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metaFor(g, sliceName(service, node.Name)), AddressType: discoveryv1.AddressTypeIPv4}
	if address.Is6() {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = service, managedBy
	for _, number := range slices.Sorted(maps.Keys(open)) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(portName(number)), Port: new(int32(open[number])), Protocol: new(corev1.ProtocolTCP)})
	}
	s.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{address.String()}, NodeName: &node.Name, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}}
	return s
}

// staleSlices are those of servers whose node is gone or not ready: what they lead to does not answer. A server that comes back makes its
// slice again.
func staleSlices(g *gateway, list []*discoveryv1.EndpointSlice, own string, ready func(node string) bool) (out []*discoveryv1.EndpointSlice) {
	for _, s := range list {
		if s.Labels[discoveryv1.LabelManagedBy] != managedBy || !isOwned(s, g) {
			continue
		}
		for _, e := range s.Endpoints {
			if node := deref(e.NodeName, ""); node != own && !ready(node) {
				out = append(out, s)
				break
			}
		}
	}
	return out
}

// isReady says that a node works.
func isReady(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// sliceName is the name of the EndpointSlice of a node.
func sliceName(service, node string) string { return service + "-" + node }

// updatedService is the Service as it should be; nil if nothing is to be changed. What others have said about it stays.
func updatedService(have, want *corev1.Service) *corev1.Service {
	next := have.DeepCopy()
	next.Labels, next.Annotations = overlaid(have.Labels, want.Labels), overlaid(have.Annotations, want.Annotations)
	next.Spec.Type, next.Spec.ExternalTrafficPolicy = want.Spec.Type, want.Spec.ExternalTrafficPolicy
	next.Spec.AllocateLoadBalancerNodePorts = want.Spec.AllocateLoadBalancerNodePorts
	next.Spec.Selector = nil
	same := slices.EqualFunc(have.Spec.Ports, want.Spec.Ports, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol
	})
	if !same {
		next.Spec.Ports = want.Spec.Ports
	}
	if same && maps.Equal(next.Labels, have.Labels) && maps.Equal(next.Annotations, have.Annotations) && have.Spec.Type == next.Spec.Type && len(have.Spec.Selector) == 0 {
		return nil
	}
	return next
}

func overlaid(under, over map[string]string) map[string]string {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, over)
	return out
}

// isOwned says that an object was made for a Gateway.
func isOwned(o metav1.Object, g *gateway) bool {
	c := metav1.GetControllerOf(o)
	return c != nil && c.UID == g.UID
}

// placeOf is where a Gateway is reached: at the addresses of the load balancer of its Service, or else at its cluster IP, which is reached
// from inside and from the machine.
func placeOf(g *gateway, svc *corev1.Service) place {
	if svc == nil {
		return place{trouble: verdict{string(gw.GatewayReasonAddressNotAssigned), "the Service of the Gateway is not there yet"}}
	}
	if !isOwned(svc, g) {
		return place{trouble: verdict{string(gw.GatewayReasonAddressNotAssigned), fmt.Sprintf("there is a Service %s already, which does not belong to the Gateway", svc.Name)}}
	}
	var out place
	for _, i := range svc.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			out.addresses = append(out.addresses, i.IP)
		}
	}
	if len(out.addresses) == 0 && svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone {
		out.addresses = []string{svc.Spec.ClusterIP}
	}
	if len(out.addresses) == 0 {
		out.trouble = verdict{string(gw.GatewayReasonAddressNotAssigned), "the Service of the Gateway has no address yet"}
	}
	if len(out.addresses) > maxAddresses {
		out.addresses = out.addresses[:maxAddresses]
	}
	for _, a := range g.Spec.Addresses {
		if a.Value != "" && !slices.Contains(out.addresses, a.Value) && out.trouble.isGood() {
			out.trouble = verdict{string(gw.GatewayReasonAddressNotUsable), fmt.Sprintf("the address %s cannot be used; addresses come from the load balancer of the Service %s", a.Value, svc.Name)}
		}
	}
	return out
}

// maxAddresses is how many addresses the status of a Gateway can have.
const maxAddresses = 16
