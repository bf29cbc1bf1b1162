package podnetwork

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

	"proa.dev/network/interfaces"
)

// setUp creates the bridge with the addresses of the node and enables forwarding. It may be called again at any time.
func (n *Network) setUp() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mtu = n.MTU
	if n.mtu == 0 {
		n.mtu = interfaces.DefaultRouteMTU(n.host)
	}
	if err := n.enableForwarding(); err != nil {
		return err
	}
	bridge, err := n.ensureBridge()
	if err != nil {
		return fmt.Errorf("make the bridge %s: %w", n.Bridge, err)
	}
	n.bridge = bridge.Attrs().Index
	for _, p := range n.PodCIDRs {
		addr := &netlink.Addr{IPNet: interfaces.IPNet(netip.PrefixFrom(gateway(p), p.Bits()))}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := n.host.AddrReplace(bridge, addr); err != nil {
			return fmt.Errorf("give the bridge %s the address %s: %w", n.Bridge, addr.IPNet, err)
		}
	}
	if err := n.removeOldAddresses(bridge); err != nil {
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

// packetSize returns the MTU of new Pods.
func (n *Network) packetSize() int {
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
	if interfaces.IsNotFound(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = n.Bridge, n.mtu
		// With a hardware address of its own the bridge does not take over that of the lowest port, which would change
		// under the Pods.
		attrs.HardwareAddr = hardwareAddress(gateway(n.PodCIDRs[0]))
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
	if mac := hardwareAddress(gateway(n.PodCIDRs[0])); !bytes.Equal(link.Attrs().HardwareAddr, mac) {
		if err := n.host.LinkSetHardwareAddr(link, mac); err != nil {
			return nil, err
		}
	}
	if err := sysctl("net/ipv4/conf/"+n.Bridge+"/route_localnet", "1"); err != nil {
		return nil, err
	}
	// The bridge is a router: it ignores router advertisements and redirects, and needs no duplicate address detection.
	for _, name := range []string{"accept_ra", "accept_dad", "accept_redirects"} {
		if err := sysctl("net/ipv6/conf/"+n.Bridge+"/"+name, "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return link, nil
}

// removeOldAddresses removes addresses from the bridge that are from a time when the node had other networks.
func (n *Network) removeOldAddresses(bridge netlink.Link) error {
	addrs, err := interfaces.Addresses(n.host, bridge)
	if err != nil {
		return fmt.Errorf("read the addresses of the bridge: %w", err)
	}
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.IP)
		isCurrent := ip.IsLinkLocalUnicast()
		for _, p := range n.PodCIDRs {
			isCurrent = isCurrent || gateway(p) == ip.Unmap()
		}
		if !isCurrent {
			if err := n.host.AddrDel(bridge, &a); err != nil {
				return fmt.Errorf("remove the old address %s of the bridge: %w", a.IPNet, err)
			}
		}
	}
	return nil
}

// enableForwarding enables forwarding of packets. An IPv6 router ignores router advertisements by default; a node that
// has its default route from one would lose it, so they are accepted explicitly.
func (n *Network) enableForwarding() error {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() {
			if err := n.setSysctl("net/ipv4/ip_forward", "1"); err != nil {
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
			if err := n.setSysctl(name, "2"); err != nil {
				return err
			}
		}
		if err := n.setSysctl("net/ipv6/conf/all/forwarding", "1"); err != nil {
			return err
		}
	}
	return nil
}

// hardwareAddress derives a hardware address from an IP address. The next owner of an IP address has the same hardware
// address as the former one, so neighbor caches stay correct.
func hardwareAddress(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	if a.Is6() {
		sum := sha256.Sum256(b)
		b = sum[:4]
	}
	return append(net.HardwareAddr{0x0a, 0x58}, b...)
}

// hostInterface returns the name of the interface on the node for one in a container. The address is part of it, so
// that the name is unique while the address is in use, even if the same container is added again.
func hostInterface(containerID, ifName string, a netip.Addr) string {
	sum := sha256.Sum256([]byte(containerID + "/" + ifName + "/" + a.String()))
	return "veth" + fmt.Sprintf("%x", sum)[:11]
}

// ifbName returns the name of the IFB device that limits what a container sends.
func ifbName(hostIf string) string { return "ifb" + strings.TrimPrefix(hostIf, "veth") }
