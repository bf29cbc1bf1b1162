package servicetable

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"proa.dev/network/conntrack"
)

const udp = unix.IPPROTO_UDP

// udpTarget is a UDP port of a Service, and the endpoints that its packets may go to. The kernel remembers the endpoint
// of a client as long as packets come, so a client that never pauses would keep sending to a removed endpoint, or to
// nobody if there was none at first.
type udpTarget struct {
	six      bool
	vips     []netip.AddrPort
	nodePort uint16
	serving  []netip.AddrPort
}

// collectUDPTargets collects the UDP ports whose conntrack entries may be stale after a change.
func (t *Table) collectUDPTargets(before, after []Port) {
	for _, p := range after {
		if p.Protocol != udp {
			continue
		}
		old, known := find(before, p)
		if !known || len(removedEndpoints(old, p)) > 0 || len(old.Serving) == 0 && len(p.Serving) > 0 || !slices.Equal(old.VIPs, p.VIPs) {
			t.udpTargets = append(t.udpTargets, p.udpTarget(p.Serving))
		}
	}
	for _, p := range before {
		if _, stays := find(after, p); !stays && p.Protocol == udp {
			t.udpTargets = append(t.udpTargets, p.udpTarget(nil))
		}
	}
}

func (p Port) udpTarget(serving []netip.AddrPort) udpTarget {
	s := udpTarget{six: p.IPv6, serving: serving}
	for _, v := range p.VIPs {
		s.vips = append(s.vips, netip.AddrPortFrom(v.Addr, v.Port))
	}
	// A flow to the port number of a node port may be another connection, to a machine outside. So without an endpoint to compare
	// with, no entry is deleted.
	if len(serving) > 0 {
		s.nodePort = p.NodePort
	}
	return s
}

// udpIndex finds the UDP ports of one address family by the destination of a packet: an address and port, or a node port at any address.
type udpIndex struct {
	vips      map[netip.AddrPort][]udpTarget
	nodePorts map[uint16][]udpTarget
}

func indexUDPTargets(targets []udpTarget, six bool) udpIndex {
	l := udpIndex{map[netip.AddrPort][]udpTarget{}, map[uint16][]udpTarget{}}
	for _, s := range targets {
		if s.six != six {
			continue
		}
		for _, v := range s.vips {
			l.vips[v] = append(l.vips[v], s)
		}
		if s.nodePort != 0 {
			l.nodePorts[s.nodePort] = append(l.nodePorts[s.nodePort], s)
		}
	}
	return l
}

// filter returns the narrowest filter that covers all entries that may be stale.
func (l udpIndex) filter(six bool) conntrack.Filter {
	addrs, ports := map[netip.Addr]bool{}, map[uint16]bool{}
	for v := range l.vips {
		addrs[v.Addr()], ports[v.Port()] = true, true
	}
	for p := range l.nodePorts {
		addrs[netip.Addr{}], ports[p] = true, true
	}
	return conntrack.Filter{Six: six, Protocol: udp, To: netip.AddrPortFrom(only(addrs), only(ports))}
}

// only returns the element of a set with one element, and the zero value for other sets.
func only[K comparable](set map[K]bool) (one K) {
	if len(set) == 1 {
		for k := range set {
			one = k
		}
	}
	return one
}

// isStale reports whether a conntrack entry leads to something that is not an endpoint.
func (l udpIndex) isStale(f *conntrack.Flow) bool {
	leadsNowhere := func(s udpTarget) bool {
		_, found := slices.BinarySearchFunc(s.serving, f.Answered.From, netip.AddrPort.Compare)
		return !found
	}
	return f.Protocol == udp && (slices.ContainsFunc(l.vips[f.Asked.To], leadsNowhere) ||
		slices.ContainsFunc(l.nodePorts[f.Asked.To.Port()], leadsNowhere))
}
