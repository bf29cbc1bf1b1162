// Package interfaces has small helpers for network interfaces that the parts of the node network share.
package interfaces

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// defaultMTU is the MTU if there is no default route.
const defaultMTU = 1500

// DefaultRouteMTU returns the MTU of the interface of the default route: packets of Pods must fit.
func DefaultRouteMTU(host *netlink.Handle) int {
	routes, err := host.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if err != nil {
		return defaultMTU
	}
	for _, r := range routes {
		if link, err := host.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().Flags&net.FlagLoopback == 0 {
			return link.Attrs().MTU
		}
	}
	return defaultMTU
}

// IsNotFound reports whether an error of netlink means that an interface does not exist.
func IsNotFound(err error) bool {
	_, ok := errors.AsType[netlink.LinkNotFoundError](err)
	return ok
}

// Remove removes an interface. It is no error if the interface does not exist.
func Remove(host *netlink.Handle, name string) error {
	link, err := host.LinkByName(name)
	if err == nil {
		err = host.LinkDel(link)
	}
	if err != nil && !IsNotFound(err) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the interface %s: %w", name, err)
	}
	return nil
}

// IPNet converts a network for netlink.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// HostNet returns the network with a single address.
func HostNet(a netip.Addr) *net.IPNet { return IPNet(netip.PrefixFrom(a, a.BitLen())) }
