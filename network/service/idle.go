package service

import (
	"net/netip"
	"slices"
)

// find returns the port of a list that is p, before or after a change.
func find(list []port, p port) (port, bool) {
	i := slices.IndexFunc(list, func(o port) bool { return o.name == p.name && o.six == p.six && o.protocol == p.protocol })
	if i < 0 {
		return port{}, false
	}
	return list[i], true
}

// idle are the endpoints of a port to which nobody was ever led from here: those of other zones or nodes that this one has no use
// for. When they go, no connection has to be looked for. One that was in use is not idle while it ends.
func idle(old, now port) (out []netip.AddrPort) {
	for _, a := range now.serving {
		if among(now.cluster, a) || among(now.local, a) || among(old.serving, a) && !among(old.idle, a) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// parted are the endpoints that a port had and that connections may still lead to.
func parted(old, now port) []netip.AddrPort {
	gone, _ := difference(old.serving, now.serving)
	return slices.DeleteFunc(gone, func(a netip.AddrPort) bool { return among(old.idle, a) })
}

// among tells whether an endpoint is in a list, which is sorted.
func among(list []netip.AddrPort, a netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(list, a, compareAddrPort)
	return found
}
