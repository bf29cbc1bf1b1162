package pod

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetStreams makes the kernel forget UDP streams to the host ports of a Pod. It remembers where a stream goes as long as
// packets come, so whoever sends without a pause would never reach the Pod that has the port now.
func (n *Network) forgetStreams(r *record) {
	for _, p := range r.Ports {
		if p.Protocol != "udp" {
			continue
		}
		for _, a := range r.Addresses {
			if !p.serves(a) {
				continue
			}
			filter := &netlink.ConntrackFilter{}
			err := filter.AddProtocol(unix.IPPROTO_UDP)
			if err == nil {
				err = filter.AddPort(netlink.ConntrackOrigDstPort, p.HostPort)
			}
			if err == nil {
				_, err = n.host.ConntrackDeleteFilters(netlink.ConntrackTable, family(a), filter)
			}
			if err != nil {
				n.Log.Warn("streams to a host port may go to its former Pod for a while", "port", p.HostPort, "err", err)
			}
		}
	}
}

// forgetConnections makes the kernel forget all connections of Pods that are gone: policies do not judge again what was let
// through when it began, and the next owner of an address could go on with it. It is one pass over all connections.
func (n *Network) forgetConnections(gone []*record) error {
	of := map[netlink.InetFamily]ends{}
	for _, r := range gone {
		for _, a := range r.Addresses {
			if of[family(a)] == nil {
				of[family(a)] = ends{}
			}
			of[family(a)][a] = true
		}
	}
	for f, addrs := range of {
		if _, err := n.host.ConntrackDeleteFilters(netlink.ConntrackTable, f, addrs); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("forget connections of Pods that are gone: %w", err)
		}
	}
	return nil
}

// ends are addresses that connections begin or end at.
type ends map[netip.Addr]bool

// MatchConntrackFlow says which connections the kernel shall forget.
func (e ends) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, ip := range []net.IP{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(ip); ok && e[a.Unmap()] {
			return true
		}
	}
	return false
}

func family(a netip.Addr) netlink.InetFamily {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
