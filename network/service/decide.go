package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilnet "k8s.io/utils/net"

	"proa.dev/kinds/gr"
)

// nodeFacts is what a decision depends on besides the objects.
type nodeFacts struct {
	name, zone string
	addresses  []netip.Addr
	answers    []netip.Addr // cluster IPs that the node answers itself
	allowed
}

// allowed is which addresses may lead to Services, besides those that the cluster gives them.
type allowed struct {
	externalIPs []netip.Prefix        // external IPs that are served
	balancers   []netip.Prefix        // addresses of load balancers that are served whoever has written them into a status
	ofNode      func(netip.Addr) bool // the address is some node's
	kept        []uint16              // ports that no Service has at the address of a node
}

// balancer tells whether an address in the status of a Service is served. Somebody has written it there, and must not catch what
// is meant for others: so it is in a range that a setting allows, or it is a node's, and the provider that gives Services the
// addresses of nodes has given it.
func (a allowed) balancer(svc *corev1.Service, ip netip.Addr) bool {
	return contains(a.balancers, ip) || svc.Annotations[gr.LoadBalancerMark] == gr.LoadBalancerNodes && a.node(ip)
}

func (a allowed) node(ip netip.Addr) bool { return a.ofNode != nil && a.ofNode(ip) }

// keeps tells whether a port is not for Services at that address.
func (a allowed) keeps(ip netip.Addr, port uint16) bool {
	return slices.Contains(a.kept, port) && a.node(ip)
}

func contains(list []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// target says where packets for an address of a Service go.
type target string

const (
	toCluster  target = "cluster"  // one of all endpoints
	toLocal    target = "local"    // one of this node's
	toExternal target = "external" // where traffic from outside goes, see port.external
	toFirewall target = "firewall" // the same for allowed sources, nowhere for others
	toReject   target = "reject"   // an answer that there is nobody
	toNobody   target = "drop"     // no answer: somebody else may have endpoints
)

// wanted is what one Service needs.
type wanted struct {
	ports  []port
	health *healthCheck
	// unserved are addresses in the status of the Service that lead nowhere, because nobody has allowed them.
	unserved []netip.Addr
}

// port is one port of a Service in one family.
type port struct {
	name     string // as people know it: namespace/name:port
	protocol uint8
	six      bool
	since    time.Time // when the Service was made

	clusterIP netip.Addr
	// vips lead addresses with the Service's port to targets, nodePort every address of the node with another port.
	vips     []vip
	nodePort uint16
	nodeTo   target

	cluster, local []netip.AddrPort
	// external says what traffic from outside does; it is policyNone if there is none.
	external policy
	affinity time.Duration
	sources  []netip.Prefix // who may use the load balancer's address; everybody if empty
	hairpin  []netip.Addr   // endpoints that may be on this node
	serving  []netip.AddrPort
	idle     []netip.AddrPort // of those, the ones that nobody was led to; the table fills it in
}

type vip struct {
	addr netip.Addr
	port uint16
	to   target
}

// policy is the external traffic policy, with what follows from it here.
type policy string

const (
	policyNone      policy = ""
	policyCluster   policy = "Cluster"
	policyLocal     policy = "Local"
	policyLocalNone policy = "Local without endpoints"
)

// healthCheck is what load balancers ask a node: does it have endpoints of the Service.
type healthCheck struct {
	port  uint16
	local int
}

// The labels of Services that another proxy serves, or none.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = "service.kubernetes.io/headless"
)

// ofAnotherProxy says that a Service is left alone here: its labels name another proxy, or say that it has no cluster IP that a proxy serves.
func ofAnotherProxy(svc *corev1.Service) bool {
	_, named := svc.Labels[labelProxyName]
	_, headless := svc.Labels[labelHeadless]
	return named || headless
}

// decide says what a Service needs on this node.
func decide(svc *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice, node nodeFacts) wanted {
	var out wanted
	if ofAnotherProxy(svc) || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == "" || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return out
	}
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	localAddrs := map[netip.Addr]bool{}
	for _, text := range ips {
		ip, ok := parse(text)
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

func decidePort(of portOf, outside outsideAddrs, endpoints []endpoint, node nodeFacts) port {
	svc, sp, ip := of.svc, of.sp, of.ip
	p := port{
		name: portName(svc, sp), protocol: protocolNumber(sp.Protocol), six: ip.Is6(), since: svc.CreationTimestamp.Time, clusterIP: ip, nodePort: uint16(sp.NodePort),
	}
	use := usage{
		internalLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		externalLocal: externallyAccessible(svc) && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		external:      sp.NodePort != 0 || len(outside.all()) > 0,
	}
	choice := choose(endpoints, use)
	p.cluster, p.local = choice.cluster, choice.local
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		p.affinity = affinity(svc)
	}
	for _, e := range endpoints {
		if e.serving {
			p.serving = append(p.serving, e.addr)
		}
		if e.local || e.homeless {
			p.hairpin = append(p.hairpin, e.addr.Addr())
		}
	}
	slices.SortFunc(p.hairpin, netip.Addr.Compare)
	p.hairpin = slices.Compact(p.hairpin)

	p.vips = append(p.vips, vip{addr: ip, port: uint16(sp.Port), to: choice.internal(use)})
	if !use.external {
		return p
	}
	var to target
	to, p.external = choice.outside(use)
	p.nodeTo = to
	for _, a := range outside.external {
		p.vips = append(p.vips, vip{addr: a, port: uint16(sp.Port), to: to})
	}
	p.sources = sources(svc, outside.balancer, node)
	for _, a := range outside.balancer {
		lb := to
		if len(p.sources) > 0 {
			lb = toFirewall
		}
		p.vips = append(p.vips, vip{addr: a, port: uint16(sp.Port), to: lb})
	}
	return p
}

// portName is how people know a port.
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

// outsideAddrs are the addresses by which a Service is reached from outside.
type outsideAddrs struct {
	external, balancer []netip.Addr
	unserved           []netip.Addr // addresses in the status that nobody has allowed
}

func (o outsideAddrs) all() []netip.Addr { return slices.Concat(o.external, o.balancer) }

func addressesOutside(svc *corev1.Service, sp corev1.ServicePort, six bool, node nodeFacts) (out outsideAddrs) {
	good := func(ip netip.Addr) bool { return ip.Is6() == six && reachable(ip) && !node.keeps(ip, uint16(sp.Port)) }
	for _, s := range svc.Spec.ExternalIPs {
		if ip, ok := parse(s); ok && good(ip) && contains(node.externalIPs, ip) {
			out.external = append(out.external, ip)
		}
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return out
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		// A load balancer that is a proxy of its own wants to see its traffic.
		if in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy {
			continue
		}
		ip, ok := parse(in.IP)
		switch {
		case !ok || ip.Is6() != six:
		case !node.balancer(svc, ip):
			out.unserved = append(out.unserved, ip)
		case good(ip):
			out.balancer = append(out.balancer, ip)
		}
	}
	return out
}

// sources are the networks that may use the load balancer's addresses. Where the node is among them, so is the address itself:
// it is often one of the node's, and then the node's own connections come from it.
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
			return nil // everybody
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

// affinity is how long a client stays with its endpoint after its last new connection.
func affinity(svc *corev1.Service) time.Duration {
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

// parse reads an address the way the API has always read them, leading zeros and all.
func parse(s string) (netip.Addr, bool) {
	ip := utilnet.ParseIPSloppy(s)
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

func compareAddrPort(a, b netip.AddrPort) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Port(), b.Port()))
}
