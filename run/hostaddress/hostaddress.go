// Package hostaddress finds the addresses of this machine at which others reach it.
package hostaddress

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// External returns the address at which others reach what listens at a on this machine. If a is a loopback address, that is the
// first of nodeIPs, the first IPv4 address of the machine that does not belong to containers, or the first address of services.
func External(a netip.AddrPort, nodeIPs []netip.Addr, services []netip.Prefix) netip.AddrPort {
	switch {
	case !a.Addr().IsLoopback():
		return a
	case len(nodeIPs) > 0:
		return netip.AddrPortFrom(nodeIPs[0], a.Port())
	}
	links, err := net.Interfaces()
	for _, l := range links {
		if err != nil || l.Flags&net.FlagLoopback != 0 || l.Flags&net.FlagUp == 0 || isVirtual(l.Name) {
			continue
		}
		addrs, err := l.Addrs()
		for _, x := range addrs {
			p, bad := netip.ParsePrefix(x.String())
			if ip := p.Addr(); err == nil && bad == nil && ip.Is4() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
				return netip.AddrPortFrom(ip, a.Port())
			}
		}
	}
	if len(services) == 0 {
		return a
	}
	return netip.AddrPortFrom(services[0].Masked().Addr().Next(), a.Port())
}

// isVirtual tells whether an interface belongs to containers: of this cluster, of another or of another program.
func isVirtual(name string) bool {
	for _, prefix := range []string{"proa", "pv", "veth", "docker", "cni", "flannel", "cali", "br-", "virbr"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return isBridge(name)
}

// BridgePrefix begins the names of the bridges that connect the nodes of one machine, and of the interfaces that are attached to them.
const BridgePrefix = "pn"

// isBridge tells whether an interface is such a bridge or is attached to one.
func isBridge(name string) bool {
	return strings.HasPrefix(name, BridgePrefix) && len(name) >= len(BridgePrefix)+8
}

// ReachableURL returns the URL at which other machines reach a server of this machine.
func ReachableURL(own string) string {
	u, err := url.Parse(own)
	if err != nil {
		return own
	}
	a, err := netip.ParseAddrPort(u.Host)
	if err != nil || !a.Addr().IsLoopback() {
		return own
	}
	u.Host = External(a, nil, nil).String()
	return u.String()
}
