package service

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	tcp = unix.IPPROTO_TCP
	// synSent is the state of a connection whose first packet has had no answer, as the kernel numbers them.
	synSent = 1
)

// noteOpenings remembers the TCP endpoints that are gone.
func (t *table) noteOpenings(before, after []port) {
	for _, old := range before {
		if old.protocol != tcp {
			continue
		}
		var now []netip.AddrPort
		for _, p := range after {
			if p.name == old.name && p.six == old.six && p.protocol == tcp {
				now = p.serving
			}
		}
		gone, _ := difference(old.serving, now)
		for _, a := range gone {
			t.openings[a] = true
		}
	}
}

// MatchConntrackFlow says which connections the kernel shall forget.
func (o openings) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	state, ok := f.ProtoInfo.(*netlink.ProtoInfoTCP)
	if !ok || state.State != synSent {
		return false
	}
	from, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && o[netip.AddrPortFrom(from.Unmap(), f.Reverse.SrcPort)]
}
