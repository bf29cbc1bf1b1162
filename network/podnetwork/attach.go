package podnetwork

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/interfaces"
)

// attach connects a container with a pair of interfaces: one end on the bridge, the other in the container with its
// addresses and a default route through the node.
func (n *Network) attach(ns *os.File, r *record) error {
	pod, err := n.enter(ns, r)
	if err != nil {
		return err
	}
	defer pod.Close()
	if err := n.pair(ns, pod, r); err != nil {
		return err
	}
	if err := n.addNeighbors(r); err != nil {
		return err
	}
	return n.configure(pod, r)
}

// sticky is NTF_STICKY: the entry does not move when frames with its address arrive at another port.
const sticky = 0x40

// addNeighbors adds permanent neighbor and forwarding entries for the hardware address of the container. The node needs
// no ARP or NDP for it, and no other Pod on the bridge can claim its address.
func (n *Network) addNeighbors(r *record) error {
	link, err := n.host.LinkByName(r.HostIf)
	if err != nil {
		return fmt.Errorf("find %s: %w", r.HostIf, err)
	}
	mac := hardwareAddress(r.Addresses[0])
	err = n.host.NeighSet(&netlink.Neigh{
		Family: unix.AF_BRIDGE, LinkIndex: link.Attrs().Index, HardwareAddr: mac, State: unix.NUD_NOARP, Flags: unix.NTF_MASTER | sticky,
	})
	if err != nil {
		return fmt.Errorf("tell the bridge where %s is: %w", mac, err)
	}
	for _, a := range r.Addresses {
		neighbour := &netlink.Neigh{LinkIndex: n.bridgeIndex(), IP: a.AsSlice(), HardwareAddr: mac, State: unix.NUD_PERMANENT}
		if err := n.host.NeighSet(neighbour); err != nil {
			return fmt.Errorf("tell the node that %s is at %s: %w", a, mac, err)
		}
	}
	return nil
}

// removeNeighbors removes the neighbor entries of a container.
func (n *Network) removeNeighbors(r *record) {
	for _, a := range r.Addresses {
		// An entry that cannot be removed does no harm: the next owner of the address has the same hardware address.
		_ = n.host.NeighDel(&netlink.Neigh{LinkIndex: n.bridgeIndex(), IP: a.AsSlice(), State: unix.NUD_PERMANENT})
	}
}

// enter prepares the namespace of a container and opens a netlink handle in it. Settings for new interfaces are made
// before the interfaces.
func (n *Network) enter(ns *os.File, r *record) (pod *netlink.Handle, err error) {
	err = n.inside(ns, func() error {
		settings := [][2]string{
			// Addresses are unique, so duplicate address detection would only cost seconds.
			{"net/ipv6/conf/default/accept_dad", "0"},
			{"net/ipv6/conf/default/accept_ra", "0"},
			{"net/ipv6/conf/default/accept_redirects", "0"},
			{"net/ipv4/conf/all/accept_redirects", "0"},
		}
		for _, a := range r.Addresses {
			if a.Is6() {
				settings = append(settings, [2]string{"net/ipv6/conf/default/disable_ipv6", "0"},
					[2]string{"net/ipv6/conf/lo/disable_ipv6", "0"})
			}
		}
		for _, s := range settings {
			if err := sysctl(s[0], s[1]); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		pod, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	return pod, err
}

// pair creates the two interfaces. It replaces leftovers of an earlier attempt.
func (n *Network) pair(ns *os.File, pod *netlink.Handle, r *record) error {
	err := n.newPair(ns, r)
	if errors.Is(err, unix.EEXIST) {
		if old, e := pod.LinkByName(r.IfName); e == nil && old.Type() == "veth" {
			_ = pod.LinkDel(old)
		}
		if old, e := n.host.LinkByName(r.HostIf); e == nil {
			_ = n.host.LinkDel(old)
		}
		err = n.newPair(ns, r)
	}
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		// The bridge was removed by another program.
		if old, e := n.host.LinkByName(r.HostIf); e == nil {
			_ = n.host.LinkDel(old)
		}
		if err := n.setUp(); err != nil {
			return err
		}
		err = n.newPair(ns, r)
	}
	if err != nil {
		return fmt.Errorf("make the interface %s: %w", r.IfName, err)
	}
	return nil
}

func (n *Network) newPair(ns *os.File, r *record) error {
	bridge, mtu := n.bridgeIndex(), n.packetSize()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Flags = r.HostIf, mtu, net.FlagUp
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: r.IfName, PeerMTU: uint32(mtu), PeerHardwareAddr: hardwareAddress(r.Addresses[0]),
		PeerNamespace: netlink.NsFd(int(ns.Fd())),
	}
	if err := n.host.LinkAdd(veth); err != nil {
		return err
	}
	if err := n.host.LinkSetMasterByIndex(veth, bridge); err != nil {
		return err
	}
	// A Pod that reaches itself through a Service is sent back through the port that it came from.
	return n.host.LinkSetHairpin(veth, true)
}

// configure gives the interfaces of the container their addresses and routes.
func (n *Network) configure(pod *netlink.Handle, r *record) error {
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}} // the index of lo in every namespace
	if err := pod.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	eth, err := pod.LinkByName(r.IfName)
	if err != nil {
		return fmt.Errorf("find %s: %w", r.IfName, err)
	}
	if err := pod.LinkSetUp(eth); err != nil {
		return fmt.Errorf("bring up %s: %w", r.IfName, err)
	}
	for _, a := range r.Addresses {
		addr := &netlink.Addr{IPNet: interfaces.HostNet(a)}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := pod.AddrReplace(eth, addr); err != nil {
			return fmt.Errorf("give %s the address %s: %w", r.IfName, a, err)
		}
	}
	router := hardwareAddress(gateway(n.PodCIDRs[0]))
	for _, gw := range n.gatewaysOf(r) {
		index := eth.Attrs().Index
		// A permanent neighbor entry for the gateway, so that no other Pod can impersonate it.
		if err := pod.NeighSet(&netlink.Neigh{LinkIndex: index, IP: gw.AsSlice(), HardwareAddr: router,
			State: unix.NUD_PERMANENT}); err != nil {
			return fmt.Errorf("introduce the node %s: %w", gw, err)
		}
		direct := &netlink.Route{LinkIndex: index, Dst: interfaces.HostNet(gw), Scope: netlink.SCOPE_LINK}
		if err := pod.RouteReplace(direct); err != nil {
			return fmt.Errorf("add the route to the node %s: %w", gw, err)
		}
		if err := pod.RouteReplace(&netlink.Route{LinkIndex: index, Dst: interfaces.IPNet(everywhere(gw)), Gw: gw.AsSlice()}); err != nil {
			return fmt.Errorf("add the default route through %s: %w", gw, err)
		}
	}
	return nil
}

// gatewaysOf returns the addresses of the node in the networks that the container has addresses in.
func (n *Network) gatewaysOf(r *record) (out []netip.Addr) {
	for _, p := range n.PodCIDRs {
		for _, a := range r.Addresses {
			if p.Contains(a) {
				out = append(out, gateway(p))
			}
		}
	}
	return out
}

func everywhere(a netip.Addr) netip.Prefix {
	p, _ := a.Prefix(0)
	return p
}

// detach removes the interfaces of a container at once.
func (n *Network) detach(r *record) error {
	n.removeNeighbors(r)
	names := []string{r.HostIf}
	if r.Shaped {
		names = append(names, ifbName(r.HostIf))
	}
	for _, name := range names {
		link, err := n.host.LinkByName(name)
		if err == nil {
			err = n.host.LinkDel(link)
		}
		if err != nil && !interfaces.IsNotFound(err) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("remove the interface %s: %w", name, err)
		}
	}
	return nil
}
