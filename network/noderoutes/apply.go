package noderoutes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/interfaces"
)

// apply updates tunnels and routes. It continues after an error, so that a problem with one node does not affect
// others.
func (m *Mesh) apply(want wanted) error {
	var errs []error
	var tunnel netlink.Link
	if len(want.ends) > 0 {
		var err error
		if tunnel, err = m.ensureTunnel(want.self); err != nil {
			errs = append(errs, fmt.Errorf("make the tunnel %s: %w", m.Device, err))
		} else {
			errs = append(errs, m.updatePeers(tunnel, want.ends))
		}
	}
	errs = append(errs, m.updateRoutes(tunnel, want.ways))
	if len(want.ends) == 0 {
		errs = append(errs, m.removeTunnel())
	}
	return errors.Join(errs...)
}

// ensureTunnel creates the tunnel interface. Its MTU leaves room for the VXLAN headers.
func (m *Mesh) ensureTunnel(self node) (netlink.Link, error) {
	link, err := m.host.LinkByName(m.Device)
	six := usesIPv6(self)
	source, _ := self.address(six)
	if vx, ok := link.(*netlink.Vxlan); err == nil &&
		(!ok || vx.VxlanId != m.ID || vx.Port != m.Port || !vx.SrcAddr.Equal(source.AsSlice())) {
		if err := m.host.LinkDel(link); err != nil {
			return nil, err
		}
		err = netlink.LinkNotFoundError{}
		link = nil
	}
	if link == nil || interfaces.IsNotFound(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = m.Device, hardware(self), m.packetSize(source)
		attrs.Flags = net.FlagUp
		err = m.host.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: m.ID, Port: m.Port, SrcAddr: source.AsSlice(), Learning: false})
		if err != nil {
			return nil, err
		}
		link, err = m.host.LinkByName(m.Device)
	}
	if err != nil {
		return nil, err
	}
	// With IPv6 the node uses the address of the bridge as source.
	for _, p := range self.networks {
		if p.Addr().Is6() {
			continue
		}
		if err := m.host.AddrReplace(link, &netlink.Addr{IPNet: interfaces.HostNet(inside(p))}); err != nil {
			return nil, err
		}
	}
	return link, m.host.LinkSetUp(link)
}

// packetSize returns the MTU of a tunnel from an address.
func (m *Mesh) packetSize(source netip.Addr) int {
	mtu, around := 1500, 50
	if source.Is6() {
		around = 70
	}
	links, err := m.host.LinkList()
	if err != nil {
		return mtu - around
	}
	for _, link := range links {
		addrs, err := m.host.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if a.IP.Equal(source.AsSlice()) && link.Attrs().Flags&net.FlagLoopback == 0 {
				mtu = link.Attrs().MTU
			}
		}
	}
	return mtu - around
}

// updatePeers sets the forwarding entries of the tunnel for the other nodes, and removes those of deleted nodes.
func (m *Mesh) updatePeers(tunnel netlink.Link, ends []end) error {
	index := tunnel.Attrs().Index
	var errs []error
	known := map[string]bool{}
	for _, e := range ends {
		known[e.mac.String()+e.outside.String()] = true
		errs = append(errs, m.host.NeighSet(&netlink.Neigh{
			Family: unix.AF_BRIDGE, LinkIndex: index, HardwareAddr: e.mac, IP: e.outside.AsSlice(), State: unix.NUD_PERMANENT,
			Flags: unix.NTF_SELF,
		}))
		for _, a := range e.inside {
			known[a.String()] = true
			errs = append(errs, m.host.NeighSet(&netlink.Neigh{LinkIndex: index, IP: a.AsSlice(), HardwareAddr: e.mac,
				State: unix.NUD_PERMANENT}))
		}
	}
	for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
		list, err := m.host.NeighList(index, family)
		errs = append(errs, err)
		for _, n := range list {
			id := n.IP.String()
			if family == unix.AF_BRIDGE {
				id = n.HardwareAddr.String() + id
			}
			if !known[id] && n.State&unix.NUD_PERMANENT != 0 {
				n.Family = family
				errs = append(errs, m.host.NeighDel(&n))
			}
		}
	}
	return errors.Join(errs...)
}

// updateRoutes updates our routes; those of others are not touched. The existing routes are read from the kernel, so
// that routes to a node that was deleted while the agent was stopped are removed too.
func (m *Mesh) updateRoutes(tunnel netlink.Link, ways []way) error {
	var errs []error
	wanted := map[string]way{}
	for _, w := range ways {
		r := &netlink.Route{Dst: interfaces.IPNet(w.to), Gw: w.via.AsSlice(), Protocol: netlink.RouteProtocol(m.Protocol)}
		if w.tunnel {
			if tunnel == nil {
				continue // ensureTunnel has returned an error
			}
			r.LinkIndex, r.Flags = tunnel.Attrs().Index, int(netlink.FLAG_ONLINK)
		}
		wanted[w.to.String()] = w
		if err := m.host.RouteReplace(r); err != nil {
			errs = append(errs, fmt.Errorf("add the route to %s through %s: %w", w.to, w.via, err))
		}
	}
	have, err := m.host.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: netlink.RouteProtocol(m.Protocol)},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read the routes: %w", err))...)
	}
	for _, r := range have {
		if !m.isOwn(r, tunnel) {
			continue
		}
		if r.Dst != nil {
			// When a gateway changes, IPv6 keeps both routes.
			if w, ok := wanted[r.Dst.String()]; ok && r.Gw.Equal(w.via.AsSlice()) {
				continue
			}
		}
		if err := m.host.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// isOwn reports whether a route with our protocol number belongs to this cluster: it leads to its Pods, or through its
// tunnel, or there is no other cluster on the machine.
func (m *Mesh) isOwn(r netlink.Route, tunnel netlink.Link) bool {
	if m.Alone || tunnel != nil && r.LinkIndex == tunnel.Attrs().Index {
		return true
	}
	if r.Dst == nil {
		return false
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	return ok && slices.ContainsFunc(m.Networks, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

func (m *Mesh) removeTunnel() error {
	link, err := m.host.LinkByName(m.Device)
	if interfaces.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = m.host.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove the tunnel %s: %w", m.Device, err)
	}
	return nil
}

// Purge removes the routes, the tunnel and the rules. It must not run at the same time as Run.
func Purge(config Config) error {
	return clean(config, func(m *Mesh) error {
		return errors.Join(m.updateRoutes(nil, nil), m.removeTunnel(), removeGuard(m.Table))
	})
}

// RemoveRoutes removes the routes, which Run makes again. It must not run at the same time as Run.
func RemoveRoutes(config Config) error {
	return clean(config, func(m *Mesh) error { return m.updateRoutes(nil, nil) })
}

// clean calls a function that removes what Run has made.
func clean(config Config, remove func(*Mesh) error) error {
	m := &Mesh{Config: config.complete()}
	m.Alone = m.Alone || len(m.Networks) == 0 // an older version did not store the networks
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	m.host = host
	return remove(m)
}
