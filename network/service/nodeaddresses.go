package service

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/nodeaddress"
)

// nodeAddresses holds the addresses of all nodes.
type nodeAddresses struct {
	ranges []netip.Prefix // of Pods and Services, where no node has an address

	mu     sync.RWMutex // guards what follows
	byNode map[string][]netip.Addr
	count  map[netip.Addr]int // how many nodes have the address
}

func newNodeAddresses(ranges []netip.Prefix) *nodeAddresses {
	return &nodeAddresses{ranges: ranges, byNode: map[string][]netip.Addr{}, count: map[netip.Addr]int{}}
}

// has reports whether a node has an address.
func (n *nodeAddresses) has(ip netip.Addr) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.count[ip] > 0
}

// set updates the addresses of a node; nil stands for a deleted node. It reports whether addresses have changed.
func (n *nodeAddresses) set(name string, node kind.Object) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.addressesOf(node)
	old := n.byNode[name]
	if slices.Equal(old, now) {
		return false
	}
	for _, ip := range old {
		if n.count[ip]--; n.count[ip] == 0 {
			delete(n.count, ip)
		}
	}
	for _, ip := range now {
		n.count[ip]++
	}
	if n.byNode[name] = now; now == nil {
		delete(n.byNode, name)
	}
	return true
}

// load reads all nodes again, after events were missed.
func (n *nodeAddresses) load(view client.View) (changed bool) {
	seen := map[string]bool{}
	for o := range view.List("") {
		seen[o.GetName()] = true
		changed = n.set(o.GetName(), o) || changed
	}
	n.mu.RLock()
	var deleted []string
	for name := range n.byNode {
		if !seen[name] {
			deleted = append(deleted, name)
		}
	}
	n.mu.RUnlock()
	for _, name := range deleted {
		changed = n.set(name, nil) || changed
	}
	return changed
}

// addressesOf returns the internal and external addresses of a node. Loopback and similar addresses do not count, nor do those of Pods and
// Services, even if the Node lists them: a Service at such an address would hijack traffic.
func (n *nodeAddresses) addressesOf(o kind.Object) []netip.Addr {
	node, ok := o.(*corev1.Node)
	if !ok || node == nil {
		return nil
	}
	return append(nodeaddress.Of(node, corev1.NodeInternalIP, n.ranges), nodeaddress.Of(node, corev1.NodeExternalIP, n.ranges)...)
}
