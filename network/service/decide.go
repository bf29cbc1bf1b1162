package service

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilnet "k8s.io/utils/net"

	"proa.dev/kinds/lib/gr"
	"proa.dev/network/servicetable"
)

// nodeFacts is what a decision depends on besides the Service and its EndpointSlices.
type nodeFacts struct {
	name, zone string
	addresses  []netip.Addr
	answers    []netip.Addr // cluster IPs that this node has itself
	allowed
}

// allowed says which addresses may lead to Services, besides their cluster IPs.
type allowed struct {
	externalIPs []netip.Prefix        // the networks of external IPs that are served
	balancers   []netip.Prefix        // the networks of load balancers: addresses in them are served whoever has written the status
	ofNode      func(netip.Addr) bool // reports whether a node has the address
	kept        []uint16              // ports that no Service gets at the address of a node
}

// allowsBalancer reports whether an address in the status of a Service is served. Whoever may write a status must not be able to hijack
// traffic, so the address must be in a network of the settings, or belong to a node and be assigned by the load balancer of the nodes.
func (a allowed) allowsBalancer(svc *corev1.Service, ip netip.Addr) bool {
	return contains(a.balancers, ip) || svc.Annotations[gr.LoadBalancerAnnotation] == gr.LoadBalancerNodes && a.isNode(ip)
}

func (a allowed) isNode(ip netip.Addr) bool { return a.ofNode != nil && a.ofNode(ip) }

// isKept reports whether a port at an address is reserved for the system.
func (a allowed) isKept(ip netip.Addr, port uint16) bool {
	return slices.Contains(a.kept, port) && a.isNode(ip)
}

func contains(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// wanted is what one Service needs on this node.
type wanted struct {
	ports  []servicetable.Port
	health *healthCheck
	// unserved are the addresses in the status of the Service that are not served, because they are not allowed.
	unserved []netip.Addr
}

// healthCheck is the health check port of a Service: load balancers ask there whether the node has endpoints.
type healthCheck struct {
	port  uint16
	local int // endpoints on this node
}

// labelProxyName is the label of Services that another proxy serves.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// IsForOtherProxy reports whether the labels of a Service name another proxy.
func IsForOtherProxy(svc *corev1.Service) bool {
	_, named := svc.Labels[labelProxyName]
	return named
}

// decide returns what a Service needs on this node.
func decide(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice, node nodeFacts) wanted {
	var out wanted
	if IsForOtherProxy(svc) || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == "" ||
		svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return out
	}
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	localAddrs := map[netip.Addr]bool{}
	for _, text := range ips {
		ip, ok := parseAddr(text)
		if !ok || slices.Contains(node.answers, ip) {
			continue
		}
		for i := range svc.Spec.Ports {
			endpoints := gather(svc.Spec.Ports[i], endpointSlices, ip.Is6(), node)
			outside := addressesOutside(svc, svc.Spec.Ports[i], ip.Is6(), node)
			out.ports = append(out.ports, decidePort(portOf{svc, svc.Spec.Ports[i], ip}, outside, endpoints, node))
			out.unserved = append(out.unserved, outside.unserved...)
			for _, e := range endpoints {
				if e.local && e.ready {
					localAddrs[e.addr.Addr()] = true
				}
			}
		}
	}
	slices.SortFunc(out.unserved, netip.Addr.Compare)
	out.unserved = slices.Compact(out.unserved)
	if needsHealthCheck(svc) && svc.Spec.HealthCheckNodePort != 0 {
		out.health = &healthCheck{uint16(svc.Spec.HealthCheckNodePort), len(localAddrs)}
	}
	return out
}

// portOf is one port of a Service at one of its cluster IPs.
type portOf struct {
	svc *corev1.Service
	sp  corev1.ServicePort
	ip  netip.Addr
}

func decidePort(of portOf, outside outsideAddrs, endpoints []endpoint, node nodeFacts) servicetable.Port {
	svc, sp, ip := of.svc, of.sp, of.ip
	p := servicetable.Port{
		Name: portName(svc, sp), Protocol: protocolNumber(sp.Protocol), IPv6: ip.Is6(), Created: svc.CreationTimestamp.Time, ClusterIP: ip,
		NodePort: uint16(sp.NodePort),
	}
	use := usage{
		internalLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		externalLocal: externallyAccessible(svc) && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		external:      sp.NodePort != 0 || len(outside.all()) > 0,
	}
	choice := choose(endpoints, use)
	p.Cluster, p.Local = choice.cluster, choice.local
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		p.Affinity = affinity(svc)
	}
	for _, e := range endpoints {
		if e.serving {
			p.Serving = append(p.Serving, e.addr)
		}
		if e.local || e.hasNoNode {
			p.Hairpin = append(p.Hairpin, e.addr.Addr())
		}
	}
	slices.SortFunc(p.Hairpin, netip.Addr.Compare)
	p.Hairpin = slices.Compact(p.Hairpin)

	p.VIPs = append(p.VIPs, servicetable.VIP{Addr: ip, Port: uint16(sp.Port), Target: choice.internal(use)})
	if !use.external {
		return p
	}
	var to servicetable.Target
	to, p.External = choice.outside(use)
	p.NodePortTarget = to
	for _, a := range outside.external {
		p.VIPs = append(p.VIPs, servicetable.VIP{Addr: a, Port: uint16(sp.Port), Target: to})
	}
	p.Sources = sources(svc, outside.balancer, node)
	for _, a := range outside.balancer {
		lb := to
		if len(p.Sources) > 0 {
			lb = servicetable.ToFirewall
		}
		p.VIPs = append(p.VIPs, servicetable.VIP{Addr: a, Port: uint16(sp.Port), Target: lb})
	}
	return p
}

// portName returns the name of a port for chains and logs.
func portName(svc *corev1.Service, sp corev1.ServicePort) string {
	name := svc.Namespace + "/" + svc.Name
	if sp.Name != "" {
		name += ":" + sp.Name
	}
	return name
}

func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return 17
	case corev1.ProtocolSCTP:
		return 132
	default:
		return 6
	}
}

// outsideAddrs are the external addresses of a Service.
type outsideAddrs struct {
	external, balancer []netip.Addr
	unserved           []netip.Addr // addresses in the status that are not allowed
}

func (o outsideAddrs) all() []netip.Addr { return slices.Concat(o.external, o.balancer) }

func addressesOutside(svc *corev1.Service, sp corev1.ServicePort, six bool, node nodeFacts) (out outsideAddrs) {
	isUsable := func(ip netip.Addr) bool { return ip.Is6() == six && reachable(ip) && !node.isKept(ip, uint16(sp.Port)) }
	for _, s := range svc.Spec.ExternalIPs {
		if ip, ok := parseAddr(s); ok && isUsable(ip) && contains(node.externalIPs, ip) {
			out.external = append(out.external, ip)
		}
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return out
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		// A load balancer with the mode Proxy handles its traffic itself.
		if in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy {
			continue
		}
		ip, ok := parseAddr(in.IP)
		switch {
		case !ok || ip.Is6() != six:
		case !node.allowsBalancer(svc, ip):
			out.unserved = append(out.unserved, ip)
		case isUsable(ip):
			out.balancer = append(out.balancer, ip)
		}
	}
	return out
}

// sources returns the networks that may use the addresses of the load balancer; none if all may. If they include an
// address of the node, the addresses of the load balancer are added: one of them is often the node's own, and then
// connections of the node come from it.
func sources(svc *corev1.Service, balancer []netip.Addr, node nodeFacts) (out []netip.Prefix) {
	if len(balancer) == 0 {
		return nil
	}
	fromNode := false
	for _, s := range svc.Spec.LoadBalancerSourceRanges {
		_, n, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(s))
		if err != nil {
			continue
		}
		addr, _ := netip.AddrFromSlice(n.IP)
		bits, _ := n.Mask.Size()
		p := netip.PrefixFrom(addr.Unmap(), bits)
		if p.Addr().Is6() != balancer[0].Is6() {
			continue
		}
		if p.Bits() == 0 {
			return nil // all may
		}
		out = append(out, p)
		fromNode = fromNode || slices.ContainsFunc(node.addresses, p.Contains)
	}
	if fromNode {
		for _, a := range balancer {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

func externallyAccessible(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer || svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeClusterIP && len(svc.Spec.ExternalIPs) > 0
}

func needsHealthCheck(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// affinity returns how long a client keeps its endpoint after its last new connection.
func affinity(svc *corev1.Service) time.Duration {
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

// parseAddr parses an address as leniently as the API server, which accepts leading zeros.
func parseAddr(s string) (netip.Addr, bool) {
	ip := utilnet.ParseIPSloppy(s)
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}
