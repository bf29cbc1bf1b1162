package noderoutes

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/utils/net"
)

// node is the part of a Node that routes depend on.
type node struct {
	name     string
	uid      types.UID
	since    time.Time      // the creation time of the Node, which the API server sets
	networks []netip.Prefix // the networks of its Pods
	addrs    []netip.Addr   // the addresses at which other nodes reach it
	// links are the networks on its links, if the node has published them.
	links     []netip.Prefix
	published bool
}

// readNode returns the part of a Node that routes depend on. Of its addresses the internal ones count, or else all.
func readNode(n *corev1.Node) node {
	out := node{name: n.Name, uid: n.UID, since: n.CreationTimestamp.UTC()}
	out.links, out.published = readLinks(n)
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	for _, text := range cidrs {
		if _, p, err := utilnet.ParseCIDRSloppy(text); err == nil {
			a, _ := netip.AddrFromSlice(p.IP)
			bits, _ := p.Mask.Size()
			if network := netip.PrefixFrom(a.Unmap(), bits); !slices.Contains(out.networks, network) {
				out.networks = append(out.networks, network)
			}
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

// address returns the address of the node in a family, or else in the other one.
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

// way is the route to a network of Pods: through the address of the node, or through a tunnel to it.
type way struct {
	to     netip.Prefix
	via    netip.Addr
	tunnel bool
}

// end is the other end of a tunnel.
type end struct {
	mac     net.HardwareAddr
	outside netip.Addr   // the address of the other node
	inside  []netip.Addr // the addresses that are routed through the tunnel
}

// wanted is the tunnel ends and routes that this node needs.
type wanted struct {
	ways []way
	ends []end
	self node
	// held is which Node has each network of Pods.
	held    map[netip.Prefix]types.UID
	refused []refusal
}

// question is the input of a decision.
type question struct {
	self   string
	nodes  []node
	onLink func(netip.Addr) bool
	limits limits
	// held is the result of the last decision: a Node keeps the networks that it has.
	held map[netip.Prefix]types.UID
}

// decide decides how each other node is reached. A direct route needs that each of the two nodes has the address of the
// other on a link. Networks and addresses of a Node count only if limits allow them and no other node has them.
func decide(q question) (out wanted) {
	nodes := slices.Clone(q.nodes)
	slices.SortFunc(nodes, older)
	if i := slices.IndexFunc(nodes, func(n node) bool { return n.name == q.self }); i >= 0 {
		out.self = nodes[i]
		nodes = slices.Insert(slices.Delete(nodes, i, i+1), 0, out.self) // this node takes precedence
	}
	given := grant(&out, nodes, q)
	macs := map[string]bool{hardware(node{name: q.self}).String(): true}
	for _, n := range given {
		if n.name == q.self || len(n.addrs) == 0 {
			continue
		}
		mac := hardware(n)
		var tunneled []netip.Addr
		for _, p := range n.networks {
			a, same := n.address(p.Addr().Is6())
			if same && q.isRoutable(out.self, n, a) {
				out.ways = append(out.ways, way{to: p, via: a})
				continue
			}
			if macs[mac.String()] {
				out.refuse(n, fmt.Sprintf("the tunnel to its network %s: an older node has the same hardware address there; give the node another name", p))
				continue
			}
			out.ways = append(out.ways, way{to: p, via: inside(p), tunnel: true})
			tunneled = append(tunneled, inside(p))
		}
		if len(tunneled) > 0 {
			macs[mac.String()] = true
			outside, _ := n.address(usesIPv6(out.self))
			out.ends = append(out.ends, end{mac: mac, outside: outside, inside: tunneled})
		}
	}
	slices.SortStableFunc(out.ways, func(a, b way) int {
		return cmp.Or(a.to.Addr().Compare(b.to.Addr()), cmp.Compare(a.to.Bits(), b.to.Bits()))
	})
	return out
}

// usesIPv6 reports whether tunnels run over IPv6: when this node has no IPv4 address.
func usesIPv6(self node) bool {
	_, four := self.address(false)
	return len(self.addrs) > 0 && !four
}

// inside returns the address of a node in the tunnel: the first of the network of its Pods, which no Pod has.
func inside(p netip.Prefix) netip.Addr { return p.Masked().Addr() }

// hardware returns the hardware address of the tunnel end of a node.
func hardware(n node) net.HardwareAddr {
	sum := sha256.Sum256([]byte(n.name))
	return append(net.HardwareAddr{0x0a, 0x59}, sum[:4]...)
}
