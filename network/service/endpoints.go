package service

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/network/servicetable"
)

// endpoint is an endpoint of a Service port.
type endpoint struct {
	addr                        netip.AddrPort
	ready, serving, terminating bool
	local, hasNoNode            bool     // it is on this node; its node is not known
	zones, nodes                []string // the hints: which zones and nodes it is for; nil for all
	forZone, forNode            bool     // the hints name the zone of this node, or this node
}

// gather returns the endpoints of one port from all slices, sorted by address. An address that occurs twice, for instance because a
// terminating Pod has left it to another Pod, counts once; the endpoint that does not terminate is preferred.
func gather(sp corev1.ServicePort, endpointSlices []*discoveryv1.EndpointSlice, six bool, node nodeFacts) []endpoint {
	want := discoveryv1.AddressTypeIPv4
	if six {
		want = discoveryv1.AddressTypeIPv6
	}
	found := map[netip.AddrPort]endpoint{}
	for _, s := range endpointSlices {
		// Slices with this label are for DNS alone, whatever their Service is, as kube-proxy has it.
		if _, headless := s.Labels[corev1.IsHeadlessService]; headless || s.AddressType != want {
			continue
		}
		for _, p := range s.Ports {
			if p.Name == nil || *p.Name != sp.Name || p.Port == nil || *p.Port == 0 || !isSameProtocol(p.Protocol, sp.Protocol) {
				continue
			}
			for i := range s.Endpoints {
				e, ok := readEndpoint(&s.Endpoints[i], *p.Port, node)
				if _, twice := found[e.addr]; ok && (!twice || !e.terminating) {
					found[e.addr] = e
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b endpoint) int { return netip.AddrPort.Compare(a.addr, b.addr) })
}

func isSameProtocol(a *corev1.Protocol, b corev1.Protocol) bool {
	if a == nil {
		return b == "" || b == corev1.ProtocolTCP
	}
	return protocolNumber(*a) == protocolNumber(b)
}

func readEndpoint(e *discoveryv1.Endpoint, portNumber int32, node nodeFacts) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	ip, ok := parseAddr(e.Addresses[0])
	if !ok || !reachable(ip) {
		return endpoint{}, false
	}
	out := endpoint{
		addr:        netip.AddrPortFrom(ip, uint16(portNumber)),
		ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		local:       e.NodeName != nil && *e.NodeName == node.name,
		hasNoNode:   e.NodeName == nil,
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.zones = append(out.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.nodes = append(out.nodes, n.Name)
		}
	}
	out.forZone, out.forNode = slices.Contains(out.zones, node.zone), slices.Contains(out.nodes, node.name)
	return out, true
}

// reachable reports whether an address can be an endpoint: it is not loopback, link-local, multicast or unspecified.
// Validation refuses such addresses too; this protects the node if one is stored nevertheless.
func reachable(ip netip.Addr) bool {
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}

// usage is which traffic a port has.
type usage struct {
	internalLocal bool // traffic from inside stays on the node
	externalLocal bool // traffic from outside stays on the node
	external      bool // there is traffic from outside
}

// usesCluster reports whether traffic may go to endpoints on other nodes. Even if traffic from outside stays on the
// node, that of Pods and of the node itself does not.
func (u usage) usesCluster() bool { return !u.internalLocal || u.external }

func (u usage) usesLocal() bool { return u.internalLocal || u.externalLocal && u.external }

// choice is which endpoints a port uses.
type choice struct {
	cluster, local []netip.AddrPort
	any            bool // there are endpoints, maybe on other nodes
}

// choose picks the endpoints for each kind of traffic: the ready ones, or else those that still serve while they terminate.
func choose(endpoints []endpoint, use usage) (out choice) {
	isTerminating := func(e endpoint) bool { return e.serving && e.terminating }
	if use.usesCluster() {
		isNear := proximity(endpoints)
		out.cluster = pick(endpoints, func(e endpoint) bool { return e.ready && isNear(e) })
		if len(out.cluster) == 0 {
			out.cluster = pick(endpoints, isTerminating)
		}
	}
	if use.usesLocal() {
		out.local = pick(endpoints, func(e endpoint) bool { return e.local && e.ready })
		if len(out.local) == 0 {
			out.local = pick(endpoints, func(e endpoint) bool { return e.local && isTerminating(e) })
		}
	}
	out.any = len(out.cluster) > 0
	if use.usesLocal() {
		out.any = out.any || slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.ready || isTerminating(e) })
	}
	return out
}

func pick(endpoints []endpoint, want func(endpoint) bool) (out []netip.AddrPort) {
	for _, e := range endpoints {
		if want(e) {
			out = append(out, e.addr)
		}
	}
	return out
}

// proximity returns a predicate for the endpoints that topology hints allow. Hints apply only if every ready endpoint has one, and one of
// them is for this node or its zone: otherwise traffic might have no endpoint.
func proximity(endpoints []endpoint) func(endpoint) bool {
	ready, nodeHints, zoneHints, forNode, forZone := false, true, true, false, false
	for _, e := range endpoints {
		if !e.ready {
			continue
		}
		ready = true
		nodeHints, zoneHints = nodeHints && len(e.nodes) > 0, zoneHints && len(e.zones) > 0
		forNode, forZone = forNode || e.forNode, forZone || e.forZone
	}
	switch {
	case ready && nodeHints && forNode:
		return func(e endpoint) bool { return e.forNode }
	case ready && zoneHints && forZone:
		return func(e endpoint) bool { return e.forZone }
	}
	return func(endpoint) bool { return true }
}

// internal returns where traffic to the cluster IP goes.
func (c choice) internal(use usage) servicetable.Target {
	switch {
	case !c.any:
		return servicetable.ToReject
	case !use.internalLocal:
		return servicetable.ToCluster
	case len(c.local) > 0:
		return servicetable.ToLocal
	}
	return servicetable.ToDrop
}

// outside returns where traffic to node ports, external IPs and load balancers goes.
func (c choice) outside(use usage) (servicetable.Target, servicetable.ExternalPolicy) {
	switch {
	case !c.any:
		return servicetable.ToReject, servicetable.ExternalNone
	case !use.externalLocal:
		return servicetable.ToExternal, servicetable.ExternalCluster
	case len(c.local) > 0:
		return servicetable.ToExternal, servicetable.ExternalLocal
	}
	return servicetable.ToExternal, servicetable.ExternalLocalEmpty
}
