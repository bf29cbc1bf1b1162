package service

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	find := func(list []port, p port) (port, bool) {
		i := slices.IndexFunc(list, func(o port) bool { return o.name == p.name && o.six == p.six && o.protocol == p.protocol })
		if i < 0 {
			return port{}, false
		}
		return list[i], true
	}
	for _, p := range after {
		if p.protocol != udp {
			continue
		}
		old, known := find(before, p)
		gone, _ := difference(old.serving, p.serving)
		if !known || len(gone) > 0 || len(old.serving) == 0 && len(p.serving) > 0 || !slices.Equal(old.vips, p.vips) {
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

// lost tells whether a stream goes where no endpoint is.
func (s stream) lost(to, from netip.AddrPort) bool {
	if !slices.Contains(s.vips, to) && (s.nodePort == 0 || to.Port() != s.nodePort) {
		return false
	}
	_, found := slices.BinarySearchFunc(s.serving, from, compareAddrPort)
	return !found
}

// MatchConntrackFlow says which streams the kernel shall forget.
func (s stream) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	if f.Forward.Protocol != udp {
		return false
	}
	to, ok := netip.AddrFromSlice(f.Forward.DstIP)
	from, ok2 := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && ok2 && s.lost(netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort), netip.AddrPortFrom(from.Unmap(), f.Reverse.SrcPort))
}
