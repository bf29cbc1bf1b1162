// Package nodeaddr says which of the addresses in the status of a Node other machines can reach it by. A Node is not believed
// blindly: whoever leads traffic to an address of a node must not lead it to the node when the address is somebody else's.
package nodeaddr

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Of returns the addresses of one type in the status of a Node. Left out are names, loopback, link-local, multicast and
// unspecified addresses, and those inside ranges: the networks of Pods and Services, where no node is.
func Of(n *corev1.Node, kind corev1.NodeAddressType, ranges []netip.Prefix) (out []netip.Addr) {
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if ip = ip.Unmap(); err != nil || a.Type != kind || special(ip) {
			continue
		}
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			out = append(out, ip)
		}
	}
	return out
}

func special(ip netip.Addr) bool {
	return ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified()
}

// Owners returns for each address the name of the one Node whose it is: the first that was created, if several claim it.
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
