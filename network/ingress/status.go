package ingress

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/kinds/lib/nodeaddress"
)

// addressesOf returns the external addresses of a node, or its internal ones if it has none. Addresses in ranges do not count, nor those
// at which no machine can be reached.
func addressesOf(n *corev1.Node, ranges []netip.Prefix) (out []netip.Addr) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		if out = nodeaddress.Of(n, kind, ranges); len(out) > 0 {
			return out
		}
	}
	return nil
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodeAddresses is what the status of an Ingress depends on besides the Ingress.
type nodeAddresses struct {
	nodes  []*corev1.Node
	self   string         // the name of this node
	ranges []netip.Prefix // of Pods and Services, where no node has an address
}

// statusOf returns the status of an Ingress as this node writes it. The addresses of this node are listed with the open ports, if any port
// is open. Addresses of other ready nodes stay as those nodes wrote them. Addresses that no ready node has are removed.
func statusOf(have []networkingv1.IngressLoadBalancerIngress, at nodeAddresses, ports []int32) []networkingv1.IngressLoadBalancerIngress {
	var out []networkingv1.IngressLoadBalancerIngress
	others := map[string]bool{}
	owners := nodeaddress.Owners(at.nodes, at.ranges)
	for _, n := range at.nodes {
		for _, ip := range addressesOf(n, at.ranges) {
			switch a := ip.String(); {
			case n.Name != at.self:
				others[a] = others[a] || isReady(n)
			case len(ports) > 0 && owners[ip] == n.Name:
				out = append(out, statusEntry(a, ports))
			}
		}
	}
	for _, h := range have {
		isListed := slices.ContainsFunc(out, func(o networkingv1.IngressLoadBalancerIngress) bool { return o.IP == h.IP })
		if others[h.IP] && !isListed {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b networkingv1.IngressLoadBalancerIngress) int { return cmp.Compare(a.IP, b.IP) })
	return out
}

func statusEntry(ip string, ports []int32) networkingv1.IngressLoadBalancerIngress {
	out := networkingv1.IngressLoadBalancerIngress{IP: ip}
	for _, p := range ports {
		out.Ports = append(out.Ports, networkingv1.IngressPortStatus{Port: p, Protocol: corev1.ProtocolTCP})
	}
	return out
}
