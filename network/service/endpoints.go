package service

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one that a port of a Service may lead to.
type endpoint struct {
	addr                        netip.AddrPort
	ready, serving, terminating bool
	local, homeless             bool     // it is on this node; nobody says on which
	zones, nodes                []string // for whom it is meant; nil for everybody
	forZone, forNode            bool     // it is meant for this node's zone, or for this node
}

// gather collects the endpoints of one port from all slices, in the order of their addresses. One that is in two slices, or
// whose address a Pod that ends has left to another, counts once; the one that lives is preferred.
func gather(sp corev1.ServicePort, endpointSlices []*discoveryv1.EndpointSlice, six bool, node nodeFacts) []endpoint {
	want := discoveryv1.AddressTypeIPv4
	if six {
		want = discoveryv1.AddressTypeIPv6
	}
	found := map[netip.AddrPort]endpoint{}
	for _, s := range endpointSlices {
		if s.AddressType != want {
			continue
		}
		for _, p := range s.Ports {
			if p.Name == nil || *p.Name != sp.Name || p.Port == nil || *p.Port == 0 || !sameProtocol(p.Protocol, sp.Protocol) {
				continue
			}
			for i := range s.Endpoints {
				e, ok := read(&s.Endpoints[i], *p.Port, node)
				if _, twice := found[e.addr]; ok && (!twice || !e.terminating) {
					found[e.addr] = e
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b endpoint) int { return compareAddrPort(a.addr, b.addr) })
}

func sameProtocol(a *corev1.Protocol, b corev1.Protocol) bool {
	if a == nil {
		return b == "" || b == corev1.ProtocolTCP
	}
	return protocolNumber(*a) == protocolNumber(b)
}

func read(e *discoveryv1.Endpoint, portNumber int32, node nodeFacts) (endpoint, bool) {
	if len(e.Addresses) == 0 {
		return endpoint{}, false
	}
	ip, ok := parse(e.Addresses[0])
	if !ok || !reachable(ip) {
		return endpoint{}, false
	}
	out := endpoint{
		addr:        netip.AddrPortFrom(ip, uint16(portNumber)),
		ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		local:       e.NodeName != nil && *e.NodeName == node.name,
		homeless:    e.NodeName == nil,
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

// reachable refuses addresses that mean the node itself, or something beside it: the API refuses them too, and this is for
// what comes past it.
func reachable(ip netip.Addr) bool {
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}

// usage is how a port's endpoints are used.
type usage struct {
	internalLocal bool // traffic from inside stays on the node
	externalLocal bool // traffic from outside stays on the node
	external      bool // there is traffic from outside
}

// usesCluster tells whether traffic ever goes to endpoints of other nodes. Even where traffic from outside stays on the node,
// Pods and the node itself are sent anywhere.
func (u usage) usesCluster() bool { return !u.internalLocal || u.external }

func (u usage) usesLocal() bool { return u.internalLocal || u.externalLocal && u.external }

// choice is which endpoints are used.
type choice struct {
	cluster, local []netip.AddrPort
	any            bool // there are endpoints somewhere
}

// choose picks the endpoints for each kind of traffic: those that are ready, or else those that still serve while they end.
func choose(endpoints []endpoint, use usage) (out choice) {
	dying := func(e endpoint) bool { return e.serving && e.terminating }
	if use.usesCluster() {
		near := proximity(endpoints)
		out.cluster = pick(endpoints, func(e endpoint) bool { return e.ready && near(e) })
		if len(out.cluster) == 0 {
			out.cluster = pick(endpoints, dying)
		}
	}
	if use.usesLocal() {
		out.local = pick(endpoints, func(e endpoint) bool { return e.local && e.ready })
		if len(out.local) == 0 {
			out.local = pick(endpoints, func(e endpoint) bool { return e.local && dying(e) })
		}
	}
	out.any = len(out.cluster) > 0
	if use.usesLocal() {
		out.any = out.any || slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.ready || dying(e) })
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

// proximity says which endpoints are near enough. Hints count only when every ready endpoint has one, and one of them is for
// this node, or for its zone: otherwise somebody would be left without.
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

// internal says where traffic to the cluster IP goes.
func (c choice) internal(use usage) target {
	switch {
	case !c.any:
		return toReject
	case !use.internalLocal:
		return toCluster
	case len(c.local) > 0:
		return toLocal
	}
	return toNobody
}

// outside says where traffic to node ports, external IPs and load balancers goes.
func (c choice) outside(use usage) (target, policy) {
	switch {
	case !c.any:
		return toReject, policyNone
	case !use.externalLocal:
		return toExternal, policyCluster
	case len(c.local) > 0:
		return toExternal, policyLocal
	}
	return toExternal, policyLocalNone
}
