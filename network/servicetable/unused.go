package servicetable

import (
	"net/netip"
	"slices"
)

// find returns the port in list that has the name, family and protocol of p.
func find(list []Port, p Port) (Port, bool) {
	i := slices.IndexFunc(list, func(o Port) bool { return o.Name == p.Name && o.IPv6 == p.IPv6 && o.Protocol == p.Protocol })
	if i < 0 {
		return Port{}, false
	}
	return list[i], true
}

// unusedEndpoints returns the endpoints of a port that no packet was ever sent to from here, because they are for other
// zones or nodes. When they are removed, there are no conntrack entries to delete. An endpoint that was in use before
// it terminates is not unused.
func unusedEndpoints(old, now Port) (out []netip.AddrPort) {
	for _, a := range now.Serving {
		if contains(now.Cluster, a) || contains(now.Local, a) || contains(old.Serving, a) && !contains(old.unused, a) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// removedEndpoints returns the endpoints that a port no longer has and that conntrack entries may lead to.
func removedEndpoints(old, now Port) []netip.AddrPort {
	removed, _ := difference(old.Serving, now.Serving)
	return slices.DeleteFunc(removed, func(a netip.AddrPort) bool { return contains(old.unused, a) })
}

// contains reports whether an endpoint is in a sorted list.
func contains(list []netip.AddrPort, a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, a, netip.AddrPort.Compare)
	return found
}
