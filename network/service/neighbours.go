package service

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/nodeaddress"
)

// neighbours are the addresses of all nodes.
type neighbours struct {
	others []netip.Prefix // the networks of Pods and Services, where no node is

	mu     sync.RWMutex // guards what follows
	byNode map[string][]netip.Addr
	count  map[netip.Addr]int // nodes that have it
}

func newNeighbours(others []netip.Prefix) *neighbours {
	return &neighbours{others: others, byNode: map[string][]netip.Addr{}, count: map[netip.Addr]int{}}
}

// has tells whether an address is some node's.
func (n *neighbours) has(ip netip.Addr) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.count[ip] > 0
}

// set says which addresses a node has; nil is a node that is gone. It tells whether that changes anything.
func (n *neighbours) set(name string, node kind.Object) (changed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.addressesOf(node)
	was := n.byNode[name]
	if slices.Equal(was, now) {
		return false
	}
	for _, ip := range was {
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

// load reads all nodes anew, after events were missed.
func (n *neighbours) load(view client.View) (changed bool) {
	seen := map[string]bool{}
	for o := range view.List("") {
		seen[o.GetName()] = true
		changed = n.set(o.GetName(), o) || changed
	}
	n.mu.RLock()
	var gone []string
	for name := range n.byNode {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	n.mu.RUnlock()
	for _, name := range gone {
		changed = n.set(name, nil) || changed
	}
	return changed
}

// addressesOf are the addresses of a node that other machines reach it by. Names are none, nor are loopback and the like, nor
// those of Pods and Services, whatever the Node says: a Service at such an address would catch what is meant for others.
func (n *neighbours) addressesOf(o kind.Object) []netip.Addr {
	node, ok := o.(*corev1.Node)
	if !ok || node == nil {
		return nil
	}
	return append(nodeaddress.Of(node, corev1.NodeInternalIP, n.others), nodeaddress.Of(node, corev1.NodeExternalIP, n.others)...)
}
