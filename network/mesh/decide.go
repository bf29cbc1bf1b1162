package mesh

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

// node is what counts of a Node.
type node struct {
	name     string
	uid      types.UID
	since    time.Time      // when the Node was created, as the server has noted it
	networks []netip.Prefix // of its Pods
	addrs    []netip.Addr   // by which other nodes reach it
	// links are the networks that the node says are on its links, if it has published them.
	links     []netip.Prefix
	published bool
}

// read takes from a Node what counts. Of its addresses those inside count, or else all that are numbers.
func read(n *corev1.Node) node {
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
	// held are the networks that nodes have been believed about, and which Node has each.
	held    map[netip.Prefix]types.UID
	refused []refusal
}

// question is what a decision depends on.
type question struct {
	self   string
	nodes  []node
	onLink func(netip.Addr) bool
	limits limits
	// held is that of the last decision: who has a network keeps it.
	held map[netip.Prefix]types.UID
}

// decide says how each other node is reached. A network can be routed where both nodes have an address of the same family of the other on
// a link. A Node is believed only as far as limits allow, and about nothing that another node has already.
func decide(q question) (out wanted) {
	nodes := slices.Clone(q.nodes)
	slices.SortFunc(nodes, older)
	if i := slices.IndexFunc(nodes, func(n node) bool { return n.name == q.self }); i >= 0 {
		out.self = nodes[i]
		nodes = slices.Insert(slices.Delete(nodes, i, i+1), 0, out.self) // what this node has is known best
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
			if same && q.routable(out.self, n, a) {
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
			outside, _ := n.address(outer(out.self))
			out.ends = append(out.ends, end{mac: mac, outside: outside, inside: tunneled})
		}
	}
	slices.SortStableFunc(out.ways, func(a, b way) int {
		return cmp.Or(a.to.Addr().Compare(b.to.Addr()), cmp.Compare(a.to.Bits(), b.to.Bits()))
	})
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
