package simulate

import (
	"hash/fnv"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// addresses assigns each Pod an address of its node's range. It is a cache of the addresses in the Pods' statuses, so
// that two Pods that are reconciled at the same moment do not get the same.
type addresses struct {
	mu    sync.Mutex // guards taken
	taken map[string]map[string]control.Key
}

// address sets the addresses of the Pod and its node in a status.
func address(st *corev1.PodStatus, pod *corev1.Pod, node *corev1.Node, c *control.Cluster, a *addresses) {
	host := hostIP(node)
	if st.HostIP == "" {
		st.HostIP, st.HostIPs = host, []corev1.HostIP{{IP: host}}
	}
	if st.PodIP != "" {
		return
	}
	ip := host
	if !pod.Spec.HostNetwork {
		ip = a.take(pod, node, c)
	}
	st.PodIP, st.PodIPs = ip, []corev1.PodIP{{IP: ip}}
}

func hostIP(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return "192.0.2.1"
}

func (a *addresses) take(pod *corev1.Pod, node *corev1.Node, c *control.Cluster) string {
	prefix := podRange(node)
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.taken[node.Name]
	if taken == nil {
		taken = map[string]control.Key{}
		a.taken[node.Name] = taken
		for p := range c.View(gr.Pods).By(nodeIndex(), node.Name) {
			if ip := p.(*corev1.Pod).Status.PodIP; ip != "" {
				taken[ip] = control.KeyOf(p)
			}
		}
	}
	key := control.KeyOf(pod)
	for ip := prefix.Addr().Next().Next(); prefix.Contains(ip); ip = ip.Next() {
		text := ip.String()
		owner, used := taken[text]
		if used && owner != key {
			if o, found := c.View(gr.Pods).Get(owner.Namespace, owner.Name); found && addressFree(o.(*corev1.Pod), text) {
				used = false
			} else {
				used = found
			}
		}
		if !used || owner == key {
			taken[text] = key
			return text
		}
	}
	return ""
}

// addressFree reports whether a Pod has another address by now, or has ended.
func addressFree(p *corev1.Pod, ip string) bool {
	return p.Status.PodIP != "" && p.Status.PodIP != ip || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// podRange returns the address range of a node's Pods: its own, or one computed from its name while it has none.
func podRange(node *corev1.Node) netip.Prefix {
	if p, err := netip.ParsePrefix(node.Spec.PodCIDR); err == nil {
		return p.Masked()
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(node.Name))
	n := h.Sum32()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 | byte(n>>8)&0x7f, byte(n), 0}), 24)
}
