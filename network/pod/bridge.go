package pod

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setUp makes the bridge with the node's addresses, and lets the node pass packets on. It may be called again at any time.
func (n *Network) setUp() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mtu = n.MTU
	if n.mtu == 0 {
		n.mtu = n.wayOut()
	}
	if err := n.forward(); err != nil {
		return err
	}
	bridge, err := n.ensureBridge()
	if err != nil {
		return fmt.Errorf("make the bridge %s: %w", n.Bridge, err)
	}
	n.bridge = bridge.Attrs().Index
	for _, p := range n.PodCIDRs {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(gateway(p), p.Bits()))}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := n.host.AddrReplace(bridge, addr); err != nil {
			return fmt.Errorf("give the bridge %s the address %s: %w", n.Bridge, addr.IPNet, err)
		}
	}
	if err := n.onlyOurs(bridge); err != nil {
		return err
	}
	if err := n.host.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bring up the bridge %s: %w", n.Bridge, err)
	}
	return nil
}

func (n *Network) bridgeIndex() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bridge
}

// packet is the largest that new Pods may send.
func (n *Network) packet() int {
	n.mu.Lock()
	mtu := n.mtu
	n.mu.Unlock()
	if n.Tunnel == "" || n.MTU != 0 {
		return mtu
	}
	if link, err := n.host.LinkByName(n.Tunnel); err == nil {
		return min(mtu, link.Attrs().MTU)
	}
	return mtu
}

func (n *Network) ensureBridge() (netlink.Link, error) {
	link, err := n.host.LinkByName(n.Bridge)
	if missing(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = n.Bridge, n.mtu
		// With an address of its own the bridge does not take that of the lowest port, which would change under the Pods.
		attrs.HardwareAddr = hardware(gateway(n.PodCIDRs[0]))
		if err := n.host.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return nil, err
		}
		link, err = n.host.LinkByName(n.Bridge)
	}
	if err != nil {
		return nil, err
	}
	if link.Type() != "bridge" {
		return nil, fmt.Errorf("there is an interface of this name, and it is a %s; choose another name for the bridge", link.Type())
	}
	if mac := hardware(gateway(n.PodCIDRs[0])); !bytes.Equal(link.Attrs().HardwareAddr, mac) {
		if err := n.host.LinkSetHardwareAddr(link, mac); err != nil {
			return nil, err
		}
	}
	if err := sysctl("net/ipv4/conf/"+n.Bridge+"/route_localnet", "1"); err != nil {
		return nil, err
	}
	// The bridge is a router: it takes no advice, and nobody else has its addresses.
	for _, name := range []string{"accept_ra", "accept_dad", "accept_redirects"} {
		if err := sysctl("net/ipv6/conf/"+n.Bridge+"/"+name, "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return link, nil
}

// onlyOurs takes addresses off the bridge that an earlier life of the node had, when its networks were others.
func (n *Network) onlyOurs(bridge netlink.Link) error {
	addrs, err := n.host.AddrList(bridge, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("read the addresses of the bridge: %w", err)
	}
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.IP)
		ours := ip.IsLinkLocalUnicast()
		for _, p := range n.PodCIDRs {
			ours = ours || gateway(p) == ip.Unmap()
		}
		if !ours {
			if err := n.host.AddrDel(bridge, &a); err != nil {
				return fmt.Errorf("remove the old address %s of the bridge: %w", a.IPNet, err)
			}
		}
	}
	return nil
}

// forward lets the node pass packets on. A router of IPv6 does not listen to other routers unless told so, and a node that has
// its own way out from one of them would lose it.
func (n *Network) forward() error {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() {
			if err := n.remembered("net/ipv4/ip_forward", "1"); err != nil {
				return err
			}
			continue
		}
		confs, _ := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
		for _, file := range confs {
			name := strings.TrimPrefix(file, "/proc/sys/")
			iface := filepath.Base(filepath.Dir(file))
			raw, err := os.ReadFile(file)
			if iface == "all" || iface == "default" || iface == "lo" || iface == n.Bridge || strings.HasPrefix(iface, "veth") ||
				err != nil || strings.TrimSpace(string(raw)) != "1" {
				continue
			}
			if err := n.remembered(name, "2"); err != nil {
				return err
			}
		}
		if err := n.remembered("net/ipv6/conf/all/forwarding", "1"); err != nil {
			return err
		}
	}
	return nil
}

// wayOut is the largest packet of the interface that leads out of the node: what Pods send must fit.
func (n *Network) wayOut() int {
	const usual = 1500
	routes, err := n.host.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if err != nil {
		return usual
	}
	for _, r := range routes {
		if link, err := n.host.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().Flags&net.FlagLoopback == 0 {
			return link.Attrs().MTU
		}
	}
	return usual
}

// hardware makes a hardware address from an IP address. Who gets an IP address gets the hardware address that its former
// owner had, so nobody's memory of it is wrong.
func hardware(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	if a.Is6() {
		sum := sha256.Sum256(b)
		b = sum[:4]
	}
	return append(net.HardwareAddr{0x0a, 0x58}, b...)
}

// hostSide names the interface on the node for one in a container. The address is part of it: while it is in use nothing
// else has this name, not even the same container that came again.
func hostSide(containerID, ifName string, a netip.Addr) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName + "/" + a.String()))
	return "veth" + fmt.Sprintf("%x", sum)[:11]
}

// shaper names the device that what a container sends passes when it is limited.
func shaper(hostIf string) string { return "ifb" + strings.TrimPrefix(hostIf, "veth") }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func single(a netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(a, a.BitLen())) }
