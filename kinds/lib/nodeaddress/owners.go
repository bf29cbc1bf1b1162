package nodeaddress

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Of returns the addresses of one type in the status of a Node by which other machines can reach it. Code that sends
// traffic to an address of a node gets it here, because the Node may claim an address that is not its own. It omits
// names, loopback, link-local, multicast and unspecified addresses, and those inside ranges: the networks of Pods and
// Services, where no node is.
func Of(n *corev1.Node, kind corev1.NodeAddressType, ranges []netip.Prefix) (out []netip.Addr) {
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if ip = ip.Unmap(); err != nil || a.Type != kind || unreachableReason(ip) != "" {
			continue
		}
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			out = append(out, ip)
		}
	}
	return out
}

// Owners returns for each address the name of the Node that owns it: the oldest, if several claim it.
func Owners(nodes []*corev1.Node, ranges []netip.Prefix) map[netip.Addr]string {
	byAge := slices.SortedFunc(slices.Values(nodes), func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	out := map[netip.Addr]string{}
	for _, n := range byAge {
		for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			for _, ip := range Of(n, kind, ranges) {
				if out[ip] == "" {
					out[ip] = n.Name
				}
			}
		}
	}
	return out
}
