package mesh

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"
)

// node is what counts of a Node.
type node struct {
	name     string
	networks []netip.Prefix // of its Pods
	addrs    []netip.Addr   // by which other nodes reach it
}

// read takes from a Node what counts. Of its addresses those inside count, or else all that are numbers.
func read(n *corev1.Node) node {
	out := node{name: n.Name}
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	for _, text := range cidrs {
		if _, p, err := utilnet.ParseCIDRSloppy(text); err == nil {
			a, _ := netip.AddrFromSlice(p.IP)
			bits, _ := p.Mask.Size()
			out.networks = append(out.networks, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind {
				out.addrs = append(out.addrs, ip.Unmap())
			}
		}
		if len(out.addrs) > 0 {
			break
		}
	}
	return out
}

// address is the node's of a family, or of the other one.
func (n node) address(six bool) (a netip.Addr, same bool) {
	for _, a := range n.addrs {
		if a.Is6() == six {
			return a, true
		}
	}
	if len(n.addrs) > 0 {
		return n.addrs[0], false
	}
	return netip.Addr{}, false
}

// way is how a network of Pods is reached: through the node's address, or through a tunnel to it.
type way struct {
	to     netip.Prefix
	via    netip.Addr
	tunnel bool
}

// end is the other end of a tunnel.
type end struct {
	mac     net.HardwareAddr
	outside netip.Addr   // where packets are sent
	inside  []netip.Addr // the addresses that are routed through
}

// wanted is what this node needs.
type wanted struct {
	ways []way
	ends []end
	self node
}

// decide says how each other node is reached. A network can be routed where the node has an address of the same family on our
// link. Two nodes whose networks overlap cannot both be right, and the first by name is.
func decide(self string, nodes []node, onLink func(netip.Addr) bool) (out wanted) {
	slices.SortFunc(nodes, func(a, b node) int { return compare(a.name, b.name) })
	if i := slices.IndexFunc(nodes, func(n node) bool { return n.name == self }); i >= 0 {
		out.self = nodes[i]
	}
	taken := slices.Clone(out.self.networks)
	for _, n := range nodes {
		if n.name == self || len(n.addrs) == 0 {
			continue
		}
		var tunneled []netip.Addr
		for _, p := range n.networks {
			if slices.ContainsFunc(taken, p.Overlaps) {
				continue
			}
			taken = append(taken, p)
			a, same := n.address(p.Addr().Is6())
			if same && onLink(a) {
				out.ways = append(out.ways, way{to: p, via: a})
				continue
			}
			out.ways = append(out.ways, way{to: p, via: inside(p), tunnel: true})
			tunneled = append(tunneled, inside(p))
		}
		if len(tunneled) > 0 {
			outside, _ := n.address(outer(out.self))
			out.ends = append(out.ends, end{mac: hardware(n), outside: outside, inside: tunneled})
		}
	}
	return out
}

// outer tells whether tunnels run over IPv6: when this node has no other address.
func outer(self node) bool {
	_, four := self.address(false)
	return len(self.addrs) > 0 && !four
}

// inside is a node's address in the tunnel: the first of its Pods' network, which no Pod has.
func inside(p netip.Prefix) netip.Addr { return p.Masked().Addr() }

// hardware is the hardware address of a node's end of tunnels.
func hardware(n node) net.HardwareAddr {
	sum := sha256.Sum256([]byte(n.name))
	return append(net.HardwareAddr{0x0a, 0x59}, sum[:4]...)
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
