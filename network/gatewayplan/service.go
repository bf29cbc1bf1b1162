package gatewayplan

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

// The labels of the Service and the EndpointSlices of a Gateway.
const (
	// LabelGateway names the Gateway of a Service or EndpointSlice.
	LabelGateway = gw.GatewayNameLabelKey
	labelClass   = "gateway.networking.k8s.io/gateway-class-name"
	managedBy    = "gateway.proa.dev"
)

// ServiceName returns the name of the Service of a Gateway.
func ServiceName(g *gw.Gateway) string {
	return shortened(g.Name + "-" + string(g.Spec.GatewayClassName))
}

// shortened returns a name that fits a label and a Service: the end of a name that is too long becomes a hash.
func shortened(name string) string {
	const longest = 63
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%x", name[:longest-9], sum[:4])
}

// Ports returns the ports of a Gateway that are served. The value is true for TLS.
func (g *Gateway) Ports() map[int32]bool {
	out := map[int32]bool{}
	for _, l := range g.listeners {
		if l.isServing() {
			out[l.Port] = l.isSecure()
		}
	}
	return out
}

func portName(number int32) string { return fmt.Sprintf("port-%d", number) }

// ServiceFor returns the Service that gives a Gateway its address, or nil if no listener is served.
func ServiceFor(g *Gateway) *corev1.Service {
	ports := g.Ports()
	if len(ports) == 0 || !g.refused.IsZero() {
		return nil
	}
	svc := &corev1.Service{ObjectMeta: metaFor(g, ServiceName(g.Gateway))}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal // clients keep their addresses
	svc.Spec.AllocateLoadBalancerNodePorts = new(false)
	for _, number := range slices.Sorted(maps.Keys(ports)) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: portName(number), Port: number, Protocol: corev1.ProtocolTCP})
	}
	return svc
}

// metaFor returns the metadata of an object that belongs to a Gateway.
func metaFor(g *Gateway, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: g.Namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	if i := g.Spec.Infrastructure; i != nil {
		for k, v := range i.Labels {
			m.Labels[string(k)] = string(v)
		}
		for k, v := range i.Annotations {
			m.Annotations[string(k)] = string(v)
		}
	}
	m.Labels[LabelGateway] = shortened(g.Name)
	m.Labels[labelClass] = shortened(string(g.Spec.GatewayClassName))
	m.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: gw.GroupVersion.String(), Kind: kindGateway, Name: g.Name, UID: g.UID, Controller: new(true),
		BlockOwnerDeletion: new(true),
	}}
	return m
}

// SliceFor returns the EndpointSlice that directs the Service of a Gateway to the ports of the proxy on a node. open maps the ports of the
// Gateway to those of the proxy.
func SliceFor(g *Gateway, node *corev1.Node, address netip.Addr, open map[int32]int) *discoveryv1.EndpointSlice {
	service := ServiceName(g.Gateway)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metaFor(g, sliceName(service, node.Name)), AddressType: discoveryv1.AddressTypeIPv4}
	if address.Is6() {
		s.AddressType = discoveryv1.AddressTypeIPv6
	}
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = service, managedBy
	for _, number := range slices.Sorted(maps.Keys(open)) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(portName(number)), Port: new(int32(open[number])),
			Protocol: new(corev1.ProtocolTCP)})
	}
	s.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{address.String()}, NodeName: &node.Name,
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}}
	return s
}

// StaleSlices returns the EndpointSlices of other nodes that are deleted or not ready. A server that comes back creates its slice again.
func StaleSlices(g *Gateway, list []*discoveryv1.EndpointSlice, own string,
	ready func(node string) bool) (out []*discoveryv1.EndpointSlice) {
	for _, s := range list {
		if s.Labels[discoveryv1.LabelManagedBy] != managedBy || !IsOwned(s, g) {
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

// IsReady reports whether a node exists and is ready.
func IsReady(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func sliceName(service, node string) string { return service + "-" + node }

// UpdatedService returns the Service with the fields that this controller owns set, or nil if nothing changes. Fields of others stay.
func UpdatedService(have, want *corev1.Service) *corev1.Service {
	next := have.DeepCopy()
	next.Labels, next.Annotations = overlaid(have.Labels, want.Labels), overlaid(have.Annotations, want.Annotations)
	next.Spec.Type, next.Spec.ExternalTrafficPolicy = want.Spec.Type, want.Spec.ExternalTrafficPolicy
	next.Spec.AllocateLoadBalancerNodePorts = want.Spec.AllocateLoadBalancerNodePorts
	next.Spec.Selector = nil
	samePorts := slices.EqualFunc(have.Spec.Ports, want.Spec.Ports, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol
	})
	if !samePorts {
		next.Spec.Ports = want.Spec.Ports
	}
	if samePorts && maps.Equal(next.Labels, have.Labels) && maps.Equal(next.Annotations, have.Annotations) &&
		have.Spec.Type == next.Spec.Type && len(have.Spec.Selector) == 0 {
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

// IsOwned reports whether an object belongs to a Gateway.
func IsOwned(o metav1.Object, g *Gateway) bool {
	c := metav1.GetControllerOf(o)
	return c != nil && c.UID == g.UID
}

// PlacementOf returns where clients reach a Gateway: at the addresses of the load balancer of its Service, or else at its cluster IP, which
// works inside the cluster and on the machine.
func PlacementOf(g *Gateway, svc *corev1.Service) Placement {
	if svc == nil {
		return Placement{Problem: Problem{string(gw.GatewayReasonAddressNotAssigned), "the Service of the Gateway is not there yet"}}
	}
	if !IsOwned(svc, g) {
		return Placement{Problem: Problem{string(gw.GatewayReasonAddressNotAssigned),
			fmt.Sprintf("there is a Service %s already, which does not belong to the Gateway", svc.Name)}}
	}
	var out Placement
	for _, i := range svc.Status.LoadBalancer.Ingress {
		if i.IP != "" {
			out.Addresses = append(out.Addresses, i.IP)
		}
	}
	if len(out.Addresses) == 0 && svc.Spec.ClusterIP != "" && svc.Spec.ClusterIP != corev1.ClusterIPNone {
		out.Addresses = []string{svc.Spec.ClusterIP}
	}
	if len(out.Addresses) == 0 {
		out.Problem = Problem{string(gw.GatewayReasonAddressNotAssigned), "the Service of the Gateway has no address yet"}
	}
	if len(out.Addresses) > maxAddresses {
		out.Addresses = out.Addresses[:maxAddresses]
	}
	for _, a := range g.Spec.Addresses {
		if a.Value != "" && !slices.Contains(out.Addresses, a.Value) && out.Problem.IsZero() {
			out.Problem = Problem{string(gw.GatewayReasonAddressNotUsable), fmt.Sprintf("the address %s cannot be used; addresses come from the load balancer of the Service %s", a.Value, svc.Name)}
		}
	}
	return out
}

// maxAddresses is the limit of the API for the addresses in the status of a Gateway.
const maxAddresses = 16
