package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// apply brings tunnels and routes to what is wanted. It goes on after an error, so that one node does not keep others from
// being reached.
func (m *Mesh) apply(want wanted) error {
	var errs []error
	var tunnel netlink.Link
	if len(want.ends) > 0 {
		var err error
		if tunnel, err = m.ensureTunnel(want.self); err != nil {
			errs = append(errs, fmt.Errorf("make the tunnel %s: %w", m.Device, err))
		} else {
			errs = append(errs, m.ends(tunnel, want.ends))
		}
	}
	errs = append(errs, m.routes(tunnel, want.ways))
	if len(want.ends) == 0 {
		errs = append(errs, m.removeTunnel())
	}
	return errors.Join(errs...)
}

func missing(err error) bool {
	_, ok := errors.AsType[netlink.LinkNotFoundError](err)
	return ok
}

// ensureTunnel makes our end of the tunnels. Packets of Pods must fit into those of the node, with what is put around them.
func (m *Mesh) ensureTunnel(self node) (netlink.Link, error) {
	link, err := m.host.LinkByName(m.Device)
	six := outer(self)
	source, _ := self.address(six)
	if vx, ok := link.(*netlink.Vxlan); err == nil && (!ok || vx.VxlanId != m.ID || vx.Port != m.Port || !vx.SrcAddr.Equal(source.AsSlice())) {
		if err := m.host.LinkDel(link); err != nil {
			return nil, err
		}
		err = netlink.LinkNotFoundError{}
		link = nil
	}
	if link == nil || missing(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = m.Device, hardware(self), m.packet(source)
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
	// With IPv6 the node's own packets have the address of the bridge, which will do.
	for _, p := range self.networks {
		if p.Addr().Is6() {
			continue
		}
		if err := m.host.AddrReplace(link, &netlink.Addr{IPNet: single(inside(p))}); err != nil {
			return nil, err
		}
	}
	return link, m.host.LinkSetUp(link)
}

// packet is the largest that fits into a tunnel from an address.
func (m *Mesh) packet(source netip.Addr) int {
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

// ends tells the tunnel where the others are, and forgets those that are gone.
func (m *Mesh) ends(tunnel netlink.Link, ends []end) error {
	index := tunnel.Attrs().Index
	var errs []error
	known := map[string]bool{}
	for _, e := range ends {
		known[e.mac.String()+e.outside.String()] = true
		errs = append(errs, m.host.NeighSet(&netlink.Neigh{
			Family: unix.AF_BRIDGE, LinkIndex: index, HardwareAddr: e.mac, IP: e.outside.AsSlice(), State: unix.NUD_PERMANENT, Flags: unix.NTF_SELF,
		}))
		for _, a := range e.inside {
			known[a.String()] = true
			errs = append(errs, m.host.NeighSet(&netlink.Neigh{LinkIndex: index, IP: a.AsSlice(), HardwareAddr: e.mac, State: unix.NUD_PERMANENT}))
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

// routes brings our routes to what is wanted. Routes of others are not touched. What is there is read from the kernel, so routes
// to a node that has gone are removed even if that happened while nobody was looking.
func (m *Mesh) routes(tunnel netlink.Link, ways []way) error {
	var errs []error
	wanted := map[string]way{}
	for _, w := range ways {
		r := &netlink.Route{Dst: ipNet(w.to), Gw: w.via.AsSlice(), Protocol: netlink.RouteProtocol(m.Protocol)}
		if w.tunnel {
			if tunnel == nil {
				continue // the reason was reported
			}
			r.LinkIndex, r.Flags = tunnel.Attrs().Index, int(netlink.FLAG_ONLINK)
		}
		wanted[w.to.String()] = w
		if err := m.host.RouteReplace(r); err != nil {
			errs = append(errs, fmt.Errorf("add the route to %s through %s: %w", w.to, w.via, err))
		}
	}
	have, err := m.host.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: netlink.RouteProtocol(m.Protocol)}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read the routes: %w", err))...)
	}
	for _, r := range have {
		if !m.ours(r, tunnel) {
			continue
		}
		if r.Dst != nil {
			// Where a way has changed, IPv6 keeps both routes.
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

// ours tells whether a route with our number is this cluster's: it leads to its Pods, or through its tunnel, or no other cluster
// is there that might have made it.
func (m *Mesh) ours(r netlink.Route, tunnel netlink.Link) bool {
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
	if missing(err) {
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

// Purge removes every route, the tunnel and the rules. It must not run beside Run.
func Purge(config Config) error {
	m := &Mesh{Config: config.complete()}
	m.Alone = m.Alone || len(m.Networks) == 0 // an older version did not note the networks
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	m.host = host
	return errors.Join(m.routes(nil, nil), m.removeTunnel(), removeGuard(m.Table))
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func single(a netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(a, a.BitLen())) }
