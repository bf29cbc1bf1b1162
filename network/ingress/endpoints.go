package ingress

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/network/route"
)

// EndpointsOf are the endpoints behind a port of a Service: those that are ready, or else those that still serve while they end.
// A Service of two families is asked in its first, so that a Pod counts once. may says which addresses may be asked.
func EndpointsOf(svc *corev1.Service, ref route.Ref, endpointSlices []*discoveryv1.EndpointSlice, may func(netip.Addr) bool) []netip.AddrPort {
	families := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	if svc != nil && len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		slices.Reverse(families)
	}
	for _, family := range families {
		if out := ofFamily(family, ref, endpointSlices, may); len(out) > 0 {
			return out
		}
	}
	return nil
}

func ofFamily(family discoveryv1.AddressType, ref route.Ref, endpointSlices []*discoveryv1.EndpointSlice, may func(netip.Addr) bool) []netip.AddrPort {
	var ready, ending []netip.AddrPort
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
			if err != nil || !may(ip.Unmap()) {
				continue
			}
			at, c := netip.AddrPortFrom(ip.Unmap(), port), e.Conditions
			switch {
			case c.Ready == nil || *c.Ready:
				ready = append(ready, at)
			case c.Serving != nil && *c.Serving && c.Terminating != nil && *c.Terminating:
				ending = append(ending, at)
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func portOf(s *discoveryv1.EndpointSlice, ref route.Ref) (uint16, bool) {
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

// Reachable refuses addresses that mean this machine itself, or something beside it. The API refuses them too; this is for what
// comes past it.
func Reachable(ip netip.Addr) bool {
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}
