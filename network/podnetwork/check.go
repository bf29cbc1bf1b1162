package podnetwork

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/interfaces"
)

// otherCIDR is what a user can do, beside stopping it, about another cluster whose Pods have the same network.
const otherCIDR = ", or create one of the two with another --cluster-cidr"

// Check returns an error unless the bridge of the node is up and packets to the node's Pods leave by it. Without PodCIDRs, the
// networks in which the bridge has addresses count.
func Check(config Config) error {
	return config.inspect(func(host *netlink.Handle, networks []netip.Prefix) error {
		return interfaces.CheckRoutes(host, config.Bridge, networks, otherCIDR)
	})
}

// CheckOverlap returns an error if an interface of this machine that is not of this Pod network has an address in it, such as the
// bridge of another cluster. The network may work nevertheless: the kernel uses the older one of two equal routes.
func CheckOverlap(config Config) error {
	return config.inspect(func(host *netlink.Handle, networks []netip.Prefix) error {
		return interfaces.CheckOverlap(host, []string{config.Bridge, config.Tunnel}, networks, otherCIDR)
	})
}

// Disable sets the bridge and the tunnel of a node down, so that this machine has no route to its Pods any more. New sets the bridge
// up again. If keepUsed is set, a bridge to which Pods are connected stays as it is.
func Disable(config Config, keepUsed bool) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	bridge := config.BridgeName()
	if keepUsed {
		used, err := isUsed(host, bridge)
		if err != nil || used {
			return err
		}
	}
	if config.Tunnel != "" {
		if err := interfaces.Disable(host, config.Tunnel); err != nil {
			return err
		}
	}
	return interfaces.Disable(host, bridge)
}

// inspect calls do with a netlink handle and the networks of the node's Pods, after it has completed the name of the bridge.
func (c *Config) inspect(do func(*netlink.Handle, []netip.Prefix) error) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	c.Bridge = c.BridgeName()
	networks := c.PodCIDRs
	if len(networks) == 0 {
		if networks, err = interfaces.NetworksOf(host, c.Bridge); err != nil {
			return err
		}
	}
	return do(host, networks)
}

// isUsed reports whether an interface is connected to a bridge.
func isUsed(host *netlink.Handle, bridge string) (bool, error) {
	link, err := host.LinkByName(bridge)
	if interfaces.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find the bridge %s: %w", bridge, err)
	}
	links, err := interfaces.Links(host)
	if err != nil {
		return false, fmt.Errorf("list the interfaces: %w", err)
	}
	return slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex == link.Attrs().Index }), nil
}

// repairBridge sets the bridge up again, with its addresses and Pods, when another program has set it down or removed it.
func (n *Network) repairBridge() {
	if n.hasBridge() {
		return
	}
	n.Log.Warn("the bridge of the Pods was set down or removed by another program, or has lost an address; it is repaired", "bridge", n.Bridge)
	if err := n.setUp(); err != nil {
		n.Log.Error("the bridge of the Pods cannot be repaired", "bridge", n.Bridge, "err", err)
		return
	}
	for _, r := range n.pool.all() {
		if err := n.reconnect(r); err != nil {
			n.Log.Error("a Pod cannot be connected to the bridge again", "pod", r.Pod, "interface", r.HostIf, "err", err)
		}
	}
}

// reconnect connects a Pod to the bridge again. A bridge that was only set down has lost the entries that keep other Pods from claiming
// the Pod's address.
func (n *Network) reconnect(r *record) error {
	port, err := n.host.LinkByName(r.HostIf)
	if r.Deleted || err != nil {
		return nil // a Pod without an interface is not connected any more
	}
	if port.Attrs().MasterIndex != n.bridgeIndex() {
		if err := n.host.LinkSetMasterByIndex(port, n.bridgeIndex()); err != nil {
			return err
		}
		if err := n.host.LinkSetHairpin(port, true); err != nil {
			return err
		}
	}
	return n.addNeighbors(r)
}

// hasBridge reports whether the bridge is up and has an address in each network of the node.
func (n *Network) hasBridge() bool {
	link, err := n.host.LinkByName(n.Bridge)
	if err != nil || link.Attrs().Flags&net.FlagUp == 0 {
		return false
	}
	networks, err := interfaces.NetworksOf(n.host, n.Bridge)
	return err != nil || !slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return !slices.Contains(networks, p.Masked()) })
}
