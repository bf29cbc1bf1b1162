package service

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol identifies our routes in the routing table.
const routeProtocol = 81

// ensureRoutes adds routes to Services on a node without a default route: the kernel looks up a route before it applies
// the rules, and gives up if there is none. Any route works, because the rules change the destination.
func ensureRoutes(networks []netip.Prefix) error {
	for _, p := range networks {
		if _, err := netlink.RouteGet(p.Masked().Addr().Next().AsSlice()); !errors.Is(err, unix.ENETUNREACH) &&
			!errors.Is(err, unix.EHOSTUNREACH) {
			continue
		}
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			dst := &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
			err = netlink.RouteReplace(&netlink.Route{Dst: dst, LinkIndex: lo.Attrs().Index, Scope: unix.RT_SCOPE_LINK,
				Protocol: routeProtocol})
		}
		if err != nil {
			return fmt.Errorf("make Services in %s reachable for the node: %w", p, err)
		}
	}
	return nil
}

// RemoveRoutes removes the routes to the Services in some networks. Other clusters on the machine have routes to theirs.
func RemoveRoutes(networks []netip.Prefix) error {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("read the routes: %w", err)
	}
	var errs []error
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		to, ok := netip.AddrFromSlice(r.Dst.IP)
		if !ok || !slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(to.Unmap()) }) {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}
