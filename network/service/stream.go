package service

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"proa.dev/network/conntrack"
)

const udp = unix.IPPROTO_UDP

// stream is where UDP streams to a port of a Service may go. The kernel remembers where a stream goes as long as packets come;
// so who sends without a pause would go on sending to an endpoint that is gone, or to nobody when there was none at first.
type stream struct {
	six      bool
	vips     []netip.AddrPort
	nodePort uint16
	serving  []netip.AddrPort
}

// noteStreams remembers the UDP ports of which streams must be looked at after the transaction.
func (t *table) noteStreams(before, after []port) {
	for _, p := range after {
		if p.protocol != udp {
			continue
		}
		old, known := find(before, p)
		if !known || len(parted(old, p)) > 0 || len(old.serving) == 0 && len(p.serving) > 0 || !slices.Equal(old.vips, p.vips) {
			t.streams = append(t.streams, p.stream(p.serving))
		}
	}
	for _, p := range before {
		if _, stays := find(after, p); !stays && p.protocol == udp {
			t.streams = append(t.streams, p.stream(nil))
		}
	}
}

func (p port) stream(serving []netip.AddrPort) stream {
	s := stream{six: p.six, serving: serving}
	for _, v := range p.vips {
		s.vips = append(s.vips, netip.AddrPortFrom(v.addr, v.port))
	}
	// Any address could be behind a port of the node, also that of somebody else far away. So without an endpoint to compare
	// with nothing is done.
	if len(serving) > 0 {
		s.nodePort = p.nodePort
	}
	return s
}

// lanes are where streams of one family may go, by what they are sent to: an address and port, or any address with a port of
// the node.
type lanes struct {
	vips      map[netip.AddrPort][]stream
	nodePorts map[uint16][]stream
}

func lanesOf(streams []stream, six bool) lanes {
	l := lanes{map[netip.AddrPort][]stream{}, map[uint16][]stream{}}
	for _, s := range streams {
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

// filter is what all that must be looked at have in common.
func (l lanes) filter(six bool) conntrack.Filter {
	addrs, ports := map[netip.Addr]bool{}, map[uint16]bool{}
	for v := range l.vips {
		addrs[v.Addr()], ports[v.Port()] = true, true
	}
	for p := range l.nodePorts {
		addrs[netip.Addr{}], ports[p] = true, true
	}
	return conntrack.Filter{Six: six, Protocol: udp, To: netip.AddrPortFrom(only(addrs), only(ports))}
}

// only is the one that is in a set; nothing if there are several.
func only[K comparable](set map[K]bool) (one K) {
	if len(set) == 1 {
		for k := range set {
			one = k
		}
	}
	return one
}

// lost says which streams the kernel shall forget: those that go where no endpoint is.
func (l lanes) lost(f *conntrack.Flow) bool {
	astray := func(s stream) bool {
		_, found := slices.BinarySearchFunc(s.serving, f.Answered.From, compareAddrPort)
		return !found
	}
	return f.Protocol == udp && (slices.ContainsFunc(l.vips[f.Asked.To], astray) || slices.ContainsFunc(l.nodePorts[f.Asked.To.Port()], astray))
}
