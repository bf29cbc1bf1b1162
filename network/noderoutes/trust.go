package noderoutes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// limits is what a Node may claim about itself. The API server checks the same when a Node is written; this is a second
// check, also for objects that older versions have stored.
type limits struct {
	pods     []netip.Prefix // the ranges of all Pods
	services []netip.Prefix // the ranges of cluster IPs
}

// refusal is a claim of a Node that this node ignores.
type refusal struct {
	node string
	text string // what is refused, and why
}

func (w *wanted) refuse(n node, text string) {
	w.refused = append(w.refused, refusal{n.name, text})
}

// older orders Nodes by creation time, which the API server sets and nobody can change.
func older(a, b node) int {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.name, b.name))
}

// claim is one network of one node.
type claim struct {
	node    int // the index of the node
	network netip.Prefix
}

// grant returns the nodes with the addresses and networks that they may have. nodes must be sorted by precedence. A
// network belongs to the node that had it at the last decision, or else to the first in that order: a new node cannot
// take the network of another, whatever its name is.
func grant(out *wanted, nodes []node, q question) []node {
	given := make([]node, len(nodes))
	used := map[netip.Addr]string{}
	var claims []claim
	for i, n := range nodes {
		given[i] = n
		given[i].addrs, given[i].networks = nil, nil
		for _, a := range n.addrs {
			why := q.limits.refuseAddress(a)
			if other, taken := used[a]; taken && other != n.name && why == "" {
				why = fmt.Sprintf("node %s has the same already", other)
			}
			if why != "" {
				out.refuse(n, fmt.Sprintf("its address %s: %s", a, why))
				continue
			}
			used[a] = n.name
			given[i].addrs = append(given[i].addrs, a)
		}
		for _, p := range n.networks {
			claims = append(claims, claim{i, p})
		}
	}
	slices.SortStableFunc(claims, func(a, b claim) int { return cmp.Compare(q.rank(nodes, a), q.rank(nodes, b)) })
	out.held = map[netip.Prefix]types.UID{}
	granted := map[claim]bool{}
	var taken []claim
	for _, c := range claims {
		n := nodes[c.node]
		why := q.limits.refuseNetwork(c.network)
		if i := slices.IndexFunc(taken, func(t claim) bool { return t.network.Overlaps(c.network) }); i >= 0 && why == "" {
			why = fmt.Sprintf("it overlaps %s, the network of node %s, which had it before", taken[i].network, nodes[taken[i].node].name)
		}
		if i := slices.IndexFunc(out.self.addrs, c.network.Contains); i >= 0 && why == "" && n.name != q.self {
			why = fmt.Sprintf("it contains %s, an address of this node", out.self.addrs[i])
		}
		if why != "" {
			out.refuse(n, fmt.Sprintf("its network %s: %s", c.network, why))
			if n.name == q.self {
				taken = append(taken, c) // the Pods of this node have it nevertheless
			}
			continue
		}
		taken = append(taken, c)
		granted[c] = true
		out.held[c.network] = n.uid
	}
	for i, n := range nodes {
		for _, p := range n.networks {
			if granted[claim{i, p}] {
				given[i].networks = append(given[i].networks, p)
			}
		}
	}
	return given
}

// rank orders claims: those of this node, those that were granted before, all others.
func (q question) rank(nodes []node, c claim) int {
	switch {
	case nodes[c.node].name == q.self:
		return 0
	case q.held[c.network] == nodes[c.node].uid && nodes[c.node].uid != "":
		return 1
	}
	return 2
}

// The prefix lengths of the smallest ranges that are meant for more than one node: the usual sizes for nodes.
const (
	usualMask4 = 24
	usualMask6 = 64
)

// refuseNetwork returns why there must be no route to a network of Pods, or "" if there may be one. A route to a
// network outside the ranges of the cluster could hijack traffic.
func (l limits) refuseNetwork(p netip.Prefix) string {
	i := slices.IndexFunc(l.pods, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) })
	usual := usualMask4
	if p.Addr().Is6() {
		usual = usualMask6
	}
	switch {
	case i < 0:
		return fmt.Sprintf("it is not inside the networks of Pods of this cluster, %s; if it should be, start this node with the --cluster-cidr of the server", list(l.pods))
	case l.pods[i].Bits() == p.Bits() && p.Bits() < usual:
		return "it is a whole range of the cluster, which all nodes share"
	}
	if j := slices.IndexFunc(l.services, p.Overlaps); j >= 0 {
		return fmt.Sprintf("it overlaps %s, which is for Services", l.services[j])
	}
	return ""
}

// refuseAddress returns why an address cannot be that of a node, or "" if it can.
func (l limits) refuseAddress(a netip.Addr) string {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified():
		return "no other machine can be reached there"
	case slices.ContainsFunc(l.services, in):
		return "it is for Services"
	case slices.ContainsFunc(l.pods, in):
		return "it is for Pods; the machines of a cluster must have addresses outside its --cluster-cidr"
	}
	return ""
}

func list(prefixes []netip.Prefix) string {
	out := ""
	for i, p := range prefixes {
		if i > 0 {
			out += " and "
		}
		out += p.String()
	}
	return out
}
