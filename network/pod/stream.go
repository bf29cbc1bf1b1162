package pod

import (
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

func family(a netip.Addr) netlink.InetFamily {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
