package interfaces

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Disable sets an interface down, so that the kernel removes its routes. IPv4 addresses stay on the interface, and IPv6 addresses do
// not. It is no error if the interface does not exist.
func Disable(host *netlink.Handle, name string) error {
	link, err := host.LinkByName(name)
	if err == nil {
		err = host.LinkSetDown(link)
	}
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("set the interface %s down: %w", name, err)
	}
	return nil
}

// NetworksOf returns the networks in which an interface has addresses, without those of link-local addresses.
func NetworksOf(host *netlink.Handle, name string) (out []netip.Prefix, err error) {
	link, err := host.LinkByName(name)
	if IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the interface %s: %w", name, err)
	}
	addrs, err := Addresses(host, link)
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the interface %s: %w", name, err)
	}
	for _, a := range addrs {
		if p := prefix(a.IPNet); !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Masked())
		}
	}
	return out, nil
}

// CheckRoutes returns an error unless a bridge is up and packets to its networks leave by it. The error says what to do if they leave
// by the bridge of another cluster; alternative is what else can be done then, and may be empty.
func CheckRoutes(host *netlink.Handle, bridge string, networks []netip.Prefix, alternative string) error {
	link, err := host.LinkByName(bridge)
	switch {
	case IsNotFound(err):
		return fmt.Errorf("the bridge %s does not exist; another program has removed it, and it is created again within a minute", bridge)
	case err != nil:
		return fmt.Errorf("find the bridge %s: %w", bridge, err)
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("the bridge %s is down; another program has set it down, and it is set up again within a minute", bridge)
	}
	for _, network := range networks {
		// The first address is that of the bridge itself, and local.
		to := network.Masked().Addr().Next().Next()
		routes, err := host.RouteGet(to.AsSlice())
		if err != nil {
			return fmt.Errorf("there is no route to %s by the bridge %s: %w", network, bridge, err)
		}
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.LinkIndex != link.Attrs().Index }) {
			return leavesElsewhere(host, bridge, network, routes, alternative)
		}
	}
	return nil
}

// leavesElsewhere returns the error for packets that do not leave by their bridge.
func leavesElsewhere(host *netlink.Handle, bridge string, network netip.Prefix, routes []netlink.Route, alternative string) error {
	other, err := host.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return fmt.Errorf("packets to %s do not leave by the bridge %s: %w", network, bridge, err)
	}
	name := other.Attrs().Name
	return fmt.Errorf("packets to %s leave by the interface %s instead of the bridge %s; %s", network, name, bridge,
		overlapAdvice(name, alternative))
}

// CheckOverlap returns an error if an interface that is up, and not among own, has an address in one of the networks. For alternative
// see CheckRoutes.
func CheckOverlap(host *netlink.Handle, own []string, networks []netip.Prefix, alternative string) error {
	links, err := Links(host)
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	addrs, err := Addresses(host, nil)
	if err != nil {
		return fmt.Errorf("list the addresses of the interfaces: %w", err)
	}
	for _, l := range links {
		name := l.Attrs().Name
		if l.Attrs().Flags&net.FlagUp == 0 || slices.Contains(own, name) {
			continue
		}
		for _, a := range addrs {
			p := prefix(a.IPNet)
			within := slices.IndexFunc(networks, func(n netip.Prefix) bool { return n.Contains(p.Addr()) })
			if a.LinkIndex == l.Attrs().Index && within >= 0 {
				return fmt.Errorf("the interface %s has the address %s, which is in the network %s of this cluster; %s", name, p, networks[within],
					overlapAdvice(name, alternative))
			}
		}
	}
	return nil
}

// overlapAdvice says what to do about an interface that has the same network as a cluster.
func overlapAdvice(name, alternative string) string {
	return fmt.Sprintf("if %s belongs to another cluster (\"proa list\" shows those of this machine), stop that cluster with \"proa down\"%s; if its cluster no longer exists, remove it with \"ip link delete %s\"",
		name, alternative, name)
}

func prefix(n *net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}
