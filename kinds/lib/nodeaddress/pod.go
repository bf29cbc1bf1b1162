package nodeaddress

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PodClaim is a Pod as the node that it runs on reports it.
type PodClaim struct {
	// Pod is the Pod as it is reported, and Stored the one that is there; nil if the node creates a mirror Pod.
	Pod, Stored *corev1.Pod
	// Nodes are all Nodes of the cluster.
	Nodes iter.Seq[*corev1.Node]
}

// IsNew reports whether the node reports an address that the stored Pod does not have.
func (c *PodClaim) IsNew() bool {
	return slices.ContainsFunc(podAddresses(c.Pod), func(text string) bool { return !c.isStored(text) })
}

func (c *PodClaim) isStored(text string) bool {
	return c.Stored != nil && slices.Contains(podAddresses(c.Stored), text)
}

// CheckPod returns the first address that a node may not report of a Pod, and nil if there is none. Pods get their
// addresses from the network of the node, which may be another network plugin; but no Pod has an address of Services,
// of the API server or of another node, and traffic must not be sent there because a node says so.
func CheckPod(cluster *Cluster, claim *PodClaim) *Refusal {
	for i, text := range podAddresses(claim.Pod) {
		ip, err := parse(text)
		if err != nil || claim.isStored(text) { // validation refuses what is no address
			continue
		}
		if reason := cluster.checkPodIP(claim, ip); reason != "" {
			field := "status.podIP"
			if i > 0 {
				field = fmt.Sprintf("status.podIPs[%d].ip", i-1)
			}
			return &Refusal{field, text, reason}
		}
	}
	return nil
}

// checkPodIP returns why a Pod cannot have an IP address; empty if it can.
func (c *Cluster) checkPodIP(claim *PodClaim, ip netip.Addr) string {
	if why := unreachableReason(ip); why != "" {
		return why
	}
	if slices.ContainsFunc(c.Services, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return "it is in the range of Services"
	}
	own := false
	for n := range claim.Nodes {
		if !hasAddress(n, ip.String()) {
			continue
		}
		if n.Name != claim.Pod.Spec.NodeName {
			return "it is an address of the node " + n.Name
		}
		own = true
	}
	if c.isServer(ip) && !own {
		return "it is an address of the API server"
	}
	return ""
}

// podAddresses returns the addresses in the status of a Pod: podIP first, then podIPs, which usually repeat it.
func podAddresses(p *corev1.Pod) []string {
	if p.Status.PodIP == "" && len(p.Status.PodIPs) == 0 {
		return nil
	}
	out := make([]string, 0, 1+len(p.Status.PodIPs))
	out = append(out, p.Status.PodIP)
	for _, has := range p.Status.PodIPs {
		out = append(out, has.IP)
	}
	return out
}
