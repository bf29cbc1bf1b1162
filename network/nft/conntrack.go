package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Forget makes the kernel forget all connections of addresses that have lost their owner. What was let through when it began is
// not judged again, and the next owner of an address could go on with it. It is one pass over all that the kernel knows.
func Forget(connections *netlink.Handle, of map[netip.Addr]bool) error {
	for six, family := range map[bool]netlink.InetFamily{false: unix.AF_INET, true: unix.AF_INET6} {
		mine := ends{}
		for a := range of {
			if a.Is6() == six {
				mine[a] = true
			}
		}
		if len(mine) == 0 {
			continue
		}
		if _, err := connections.ConntrackDeleteFilters(netlink.ConntrackTable, family, mine); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("forget connections of addresses that nobody has any more: %w", err)
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
