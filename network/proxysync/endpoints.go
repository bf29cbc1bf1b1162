package proxysync

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/network/httpproxy"
)

// EndpointsOf returns the endpoints of a Service port that the proxy sends requests to: the ready ones, or else those
// that still serve while they terminate. Of a dual-stack Service only the first address family is used, so that a Pod
// counts once. Addresses that mayDial refuses are left out.
func EndpointsOf(svc *corev1.Service, ref httpproxy.Ref, endpointSlices []*discoveryv1.EndpointSlice,
	mayDial func(netip.Addr) bool) []netip.AddrPort {
	families := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	if svc != nil && len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		slices.Reverse(families)
	}
	for _, family := range families {
		if out := endpointsOfFamily(family, ref, endpointSlices, mayDial); len(out) > 0 {
			return out
		}
	}
	return nil
}

func endpointsOfFamily(family discoveryv1.AddressType, ref httpproxy.Ref, endpointSlices []*discoveryv1.EndpointSlice,
	mayDial func(netip.Addr) bool) []netip.AddrPort {
	var ready, terminating []netip.AddrPort
	for _, s := range endpointSlices {
		port, ok := portOf(s, ref)
		if !ok || s.AddressType != family {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || !mayDial(ip.Unmap()) {
				continue
			}
			at, c := netip.AddrPortFrom(ip.Unmap(), port), e.Conditions
			switch {
			case c.Ready == nil || *c.Ready:
				ready = append(ready, at)
			case c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating:
				terminating = append(terminating, at)
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func portOf(s *discoveryv1.EndpointSlice, ref httpproxy.Ref) (uint16, bool) {
	for _, p := range s.Ports {
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if name == ref.Port && p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 && (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

// Reachable reports whether an address can be a Pod: it is not loopback, link-local, multicast or unspecified. Validation refuses such
// addresses in EndpointSlices too; this protects the machine if one is stored nevertheless.
func Reachable(ip netip.Addr) bool {
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}
