// Package nodebridge connects several nodes of one machine: a bridge that every node is plugged into, each with its own
// network namespace. The machine has the first address of the networks of the bridge. It is the default gateway of the
// nodes, and masquerades their packets to the outside.
//
// All functions can be called again at any time: what exists stays, what is missing is created.
package nodebridge

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/interfaces"
	"proa.dev/network/nft"
)

// Config configures the bridge.
type Config struct {
	// Bridge is the name of the bridge, Table that of its nftables table.
	Bridge, Table string
	// Networks are the networks of the bridge, at most one for each address family.
	Networks []netip.Prefix
	// Pods are the networks of all Pods: packets to them keep their source address.
	Pods []netip.Prefix
}

// Address returns the address of the n-th node in a network; the machine itself is the first.
func Address(network netip.Prefix, n int) netip.Addr {
	a := network.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// Addresses returns the addresses of the n-th node.
func (c Config) Addresses(n int) (out []netip.Addr) {
	for _, p := range c.Networks {
		out = append(out, Address(p, n))
	}
	return out
}

// port returns the name of the interface of the machine to the n-th node.
func (c Config) port(n int) string { return fmt.Sprintf("%s-%d", c.Bridge, n) }

// inside is the name of the interface of a node.
const inside = "eth0"

// Ensure creates the bridge with the addresses of the machine, and writes the rules.
func Ensure(c Config) error { return c.ensure(func(*nft.Kernel) (bool, error) { return false, nil }) }

// Repair does what Ensure does, but does not write the rules again if they exist.
func Repair(c Config) error {
	return c.ensure(func(k *nft.Kernel) (bool, error) { return k.Has(c.Table) })
}

func (c Config) ensure(done func(*nft.Kernel) (bool, error)) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	bridge, err := ensureBridge(host, c)
	if err != nil {
		return fmt.Errorf("make the link of the nodes, %s: %w", c.Bridge, err)
	}
	if err := configure(host, bridge, c, 1); err != nil {
		return fmt.Errorf("make the link of the nodes, %s: %w", c.Bridge, err)
	}
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	defer func() { _ = kernel.Close() }()
	if _, err := kernel.Pass(c.Table, c.Networks); err != nil {
		return fmt.Errorf("let the nodes through the firewall of this machine: %w", err)
	}
	if has, err := done(kernel); has && err == nil {
		return nil
	}
	if err := kernel.Do(func(conn *nftables.Conn) error { c.rules(conn); return nil }); err != nil {
		return fmt.Errorf("write the rules of the link of the nodes: %w", err)
	}
	return nil
}

func ensureBridge(host *netlink.Handle, c Config) (netlink.Link, error) {
	link, err := host.LinkByName(c.Bridge)
	if err == nil {
		if link.Type() != "bridge" {
			return nil, fmt.Errorf("there is an interface of this name, and it is a %s", link.Type())
		}
		return link, nil
	}
	if !interfaces.IsNotFound(err) {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	// With a hardware address of its own the bridge does not take over that of a node, which may be removed.
	attrs.Name, attrs.MTU, attrs.HardwareAddr = c.Bridge, interfaces.DefaultRouteMTU(host), hardware(c.Addresses(1)[0])
	if err := host.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, err
	}
	return host.LinkByName(c.Bridge)
}

// configure gives an interface the addresses of the n-th node, and no others, and brings it up.
func configure(h *netlink.Handle, link netlink.Link, c Config, n int) error {
	want := map[netip.Addr]bool{}
	for _, p := range c.Networks {
		a := Address(p, n)
		want[a] = true
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(p.Bits(), a.BitLen())}}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := h.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("give %s the address %s: %w", link.Attrs().Name, a, err)
		}
	}
	have, err := interfaces.Addresses(h, link)
	if err != nil {
		return err
	}
	for _, x := range have {
		if a, ok := netip.AddrFromSlice(x.IP); ok && !want[a.Unmap()] && !a.IsLinkLocalUnicast() {
			if err := h.AddrDel(link, &x); err != nil {
				return fmt.Errorf("take the address %s off %s: %w", a, link.Attrs().Name, err)
			}
		}
	}
	return h.LinkSetUp(link)
}

// rules masquerades packets of nodes to the outside. Packets between nodes and to Pods keep their source address.
func (c Config) rules(conn *nftables.Conn) {
	t := nft.Renew(conn, c.Table)
	post := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	})
	leaving := conn.AddChain(&nftables.Chain{Name: "leaving", Table: t})
	rule := func(chain *nftables.Chain, words ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: nft.Rule(words...)})
	}
	for _, p := range c.Networks {
		rule(post, nft.NotOut(c.Bridge), nft.From(p), nft.Goto(leaving.Name))
	}
	for _, p := range c.Pods {
		rule(leaving, nft.To(p), nft.Return())
	}
	rule(leaving, nft.Masquerade())
}

// Plug connects the n-th node, whose network namespace is a file, to the bridge.
func Plug(c Config, n int, namespace string) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("open the network namespace of a node: %w", err)
	}
	defer ns.Close()
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	there, err := handleIn(ns)
	if err != nil {
		return err
	}
	defer there.Close()
	end, err := ensurePair(host, there, c, n, ns)
	if err != nil {
		return fmt.Errorf("make the cable %s: %w", c.port(n), err)
	}
	lo, err := there.LinkByName("lo")
	if err == nil {
		err = there.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring up the loopback interface of a node: %w", err)
	}
	if err := configure(there, end, c, n); err != nil {
		return err
	}
	for _, gateway := range c.Addresses(1) {
		if err := there.RouteReplace(&netlink.Route{LinkIndex: end.Attrs().Index, Gw: gateway.AsSlice()}); err != nil {
			return fmt.Errorf("lead a node out through %s: %w", gateway, err)
		}
	}
	return nil
}

// ensurePair finds or creates the pair of interfaces between the bridge and a node, and returns the end of the node.
func ensurePair(host, there *netlink.Handle, c Config, n int, ns *os.File) (netlink.Link, error) {
	bridge, err := host.LinkByName(c.Bridge)
	if err != nil {
		return nil, err
	}
	mac := hardware(c.Addresses(n)[0])
	end, err := there.LinkByName(inside)
	if err != nil && !interfaces.IsNotFound(err) {
		return nil, err
	}
	port, portErr := host.LinkByName(c.port(n))
	switch {
	case portErr == nil && end != nil && bytes.Equal(end.Attrs().HardwareAddr, mac) && port.Attrs().MasterIndex == bridge.Attrs().Index:
		return end, errors.Join(host.LinkSetUp(port), host.LinkSetHairpin(port, true))
	case portErr == nil:
		// Its other end is in a namespace that no longer exists, or it is on another bridge.
		if err := host.LinkDel(port); err != nil {
			return nil, err
		}
	case !interfaces.IsNotFound(portErr):
		return nil, portErr
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex, attrs.Flags = c.port(n), bridge.Attrs().MTU, bridge.Attrs().Index, net.FlagUp
	// A node that returns to an address gets the same hardware address, so that neighbor caches stay correct.
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: inside, PeerMTU: uint32(bridge.Attrs().MTU), PeerHardwareAddr: mac,
		PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := host.LinkAdd(pair); err != nil {
		return nil, err
	}
	if port, err = host.LinkByName(c.port(n)); err != nil {
		return nil, err
	}
	// Packets of a node to a port of the machine may be forwarded to a Pod of the same node. If the kernel passes
	// bridged frames to iptables (bridge-nf-call-iptables), it bridges such packets back through the port that they
	// came from.
	if err := host.LinkSetHairpin(port, true); err != nil {
		return nil, err
	}
	return there.LinkByName(inside)
}

// Unplug removes the pair of interfaces that ends in the network namespace of a file. Another node may have the same
// number by now.
func Unplug(namespace string) error {
	ns, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("open the network namespace of a node: %w", err)
	}
	defer ns.Close()
	there, err := handleIn(ns)
	if err != nil {
		return err
	}
	defer there.Close()
	return interfaces.Remove(there, inside)
}

// Disable sets the bridge down, so that this machine has no route to the nodes any more. Ensure sets it up again.
func Disable(c Config) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	return interfaces.Disable(host, c.Bridge)
}

// Check returns an error unless the bridge is up and packets to the nodes leave by it. Without Networks, those in which the bridge
// has addresses count.
func Check(c Config) error {
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	if len(c.Networks) == 0 {
		if c.Networks, err = interfaces.NetworksOf(host, c.Bridge); err != nil {
			return err
		}
	}
	return interfaces.CheckRoutes(host, c.Bridge, c.Networks, "")
}

// Purge removes the bridge, the interfaces of all nodes, and the rules.
func Purge(c Config) error {
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	errs := []error{kernel.Unpass(c.Table), kernel.Remove(c.Table), kernel.Close()}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("open netlink: %w", err))...)
	}
	defer host.Close()
	links, err := interfaces.Links(host)
	errs = append(errs, err)
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, c.Bridge+"-") {
			errs = append(errs, interfaces.Remove(host, l.Attrs().Name))
		}
	}
	return errors.Join(append(errs, interfaces.Remove(host, c.Bridge))...)
}

// handleIn opens netlink in a network namespace. A socket stays in the namespace in which it was opened.
func handleIn(ns *os.File) (*netlink.Handle, error) {
	runtime.LockOSThread() // forever if returning to the namespace fails, so that nothing else runs on this thread
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the machine's network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter the network namespace of a node: %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, fmt.Errorf("leave the network namespace of a node: %w", back))
	}
	runtime.UnlockOSThread()
	if err != nil {
		return nil, fmt.Errorf("open netlink in the network namespace of a node: %w", err)
	}
	return h, nil
}

// hardware derives a hardware address from an IP address.
func hardware(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return append(net.HardwareAddr{0x0a, 0x5a}, b[len(b)-4:]...)
}
