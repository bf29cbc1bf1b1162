package service

import (
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	tcp = unix.IPPROTO_TCP
	// synSent is the state of a connection whose first packet has had no answer, as the kernel numbers them.
	synSent = 1
)

// openings are the TCP endpoints that are gone. When a node vanishes, the kernel remembers for two minutes where the connections
// lead that nobody answered; a client that uses one of their ports again would be led there too. To look for them costs a pass
// over all that the kernel knows, so it is done for all endpoints of a while together.
type openings struct {
	gone  map[netip.AddrPort]bool
	since time.Time // of the first of them
}

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
			if len(t.openings.gone) == 0 {
				t.openings = openings{map[netip.AddrPort]bool{}, time.Now()}
			}
			t.openings.gone[a] = true
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
	return ok && o.gone[netip.AddrPortFrom(from.Unmap(), f.Reverse.SrcPort)]
}

// forgetOpenings makes the kernel forget the connections that nobody has answered, when the time has come.
func (t *table) forgetOpenings() {
	if len(t.openings.gone) == 0 || time.Since(t.openings.since) < rest {
		return
	}
	families := map[netlink.InetFamily]bool{}
	for a := range t.openings.gone {
		if a.Addr().Is4() {
			families[unix.AF_INET] = true
		} else {
			families[unix.AF_INET6] = true
		}
	}
	for f := range families {
		if _, err := t.conntrack.ConntrackDeleteFilters(netlink.ConntrackTable, f, t.openings); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			t.log.Warn("connections may be led to endpoints that are gone for a while", "err", err)
		}
	}
	t.openings = openings{}
}
