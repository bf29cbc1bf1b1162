package ingress

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"proa.dev/kinds/nodeaddress"
)

// addressesOf are the addresses under which a node is reached from outside, if it has such, or else from inside. What no machine
// can be reached at is none, nor what is inside ranges.
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

// surroundings are the nodes as the status of an Ingress depends on them: all of them, which is this one, and the networks of Pods
// and Services, where no node has an address.
type surroundings struct {
	nodes  []*corev1.Node
	self   string
	ranges []netip.Prefix
}

// statusOf is the status of an Ingress as this node sees it. Its own addresses are there with the ports that are open, none of
// them if that is none. Those of other nodes are theirs to say, as long as they are ready; what belongs to nobody goes.
func statusOf(have []networkingv1.IngressLoadBalancerIngress, near surroundings, ports []int32) []networkingv1.IngressLoadBalancerIngress {
	var out []networkingv1.IngressLoadBalancerIngress
	others := map[string]bool{}
	owners := nodeaddress.Owners(near.nodes, near.ranges)
	for _, n := range near.nodes {
		for _, ip := range addressesOf(n, near.ranges) {
			switch a := ip.String(); {
			case n.Name != near.self:
				others[a] = others[a] || isReady(n)
			case len(ports) > 0 && owners[ip] == n.Name:
				out = append(out, entry(a, ports))
			}
		}
	}
	for _, h := range have {
		mine := slices.ContainsFunc(out, func(o networkingv1.IngressLoadBalancerIngress) bool { return o.IP == h.IP })
		if others[h.IP] && !mine {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b networkingv1.IngressLoadBalancerIngress) int { return cmp.Compare(a.IP, b.IP) })
	return out
}

func entry(ip string, ports []int32) networkingv1.IngressLoadBalancerIngress {
	out := networkingv1.IngressLoadBalancerIngress{IP: ip}
	for _, p := range ports {
		out.Ports = append(out.Ports, networkingv1.IngressPortStatus{Port: p, Protocol: corev1.ProtocolTCP})
	}
	return out
}
