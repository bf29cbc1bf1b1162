package service

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// plan is what one Service has in the table: its chains, and the elements that lead to them.
type plan struct {
	ports  []port
	chains []wantedChain
	claims []wantedElement
}

// place is an element of a set.
type place struct {
	set *elements
	key string
}

type wantedElement struct {
	place
	value string
}

// plan translates what was decided into the words of the table. It changes nothing.
func (t *table) plan(_ key, ports []port) (out plan) {
	out.ports = ports
	for _, p := range ports {
		f := t.families[0]
		if p.six {
			f = t.families[1]
		}
		out.chains = append(out.chains, t.chainsOf(p, f)...)
		claim := func(set *elements, k []byte, value string) {
			out.claims = append(out.claims, wantedElement{place{set, string(k)}, value})
		}
		claim(f.clusterIPs, nft.Key(p.clusterIP), present)
		for _, v := range p.vips {
			claim(f.vips, nft.Key(v.addr, p.protocol, v.port), verdict(p, v.to))
		}
		if p.nodePort != 0 {
			claim(f.nodePorts, nft.Key(p.protocol, p.nodePort), verdict(p, p.nodeTo))
		}
		for _, a := range p.hairpin {
			claim(f.hairpin, nft.Key(a, a), present)
		}
	}
	return out
}

// verdict is the value of an element that leads to a target.
func verdict(p port, to target) string {
	switch to {
	case toNobody:
		return string(toNobody)
	case toReject:
		return gotoPrefix + rejectChain
	}
	return gotoPrefix + chainName(p, string(to))
}

// chainsOf are the chains that a port needs. Where they go on to others, those are there too.
func (t *table) chainsOf(p port, f *family) (out []wantedChain) {
	choose := func(to target, endpoints []netip.AddrPort) {
		if len(endpoints) > 0 {
			out = append(out, wantedChain{
				name: chainName(p, string(to)), family: f, text: fmt.Sprint("choose ", p.affinity), endpoints: endpoints, affinity: p.affinity,
				rules: func(c *chain) [][]expr.Any { return f.choosing(c, p) },
			})
		}
	}
	choose(toCluster, p.cluster)
	choose(toLocal, p.local)
	if p.external != policyNone {
		out = append(out, wantedChain{
			name: chainName(p, string(toExternal)), family: f, text: string(p.external),
			rules: func(*chain) [][]expr.Any { return t.external(p) },
		})
	}
	if len(p.sources) > 0 {
		out = append(out, wantedChain{
			name: chainName(p, string(toFirewall)), family: f, text: fmt.Sprint(p.sources, p.external),
			rules: func(*chain) [][]expr.Any { return firewall(p) },
		})
	}
	return out
}

// choosing are the rules that send a connection to one of the endpoints. With affinity, who was sent somewhere is sent there
// again if it is still good, and otherwise forgotten. When nobody else can be remembered, it works without.
func (f *family) choosing(c *chain, p port) [][]expr.Any {
	count, first, all := uint32(len(c.group.endpoints)), c.group.first, f.endpoints.set
	random := nft.Rule(nft.Random(count, first), nft.Find(all), f.Translate())
	if c.clients == nil {
		return [][]expr.Any{random}
	}
	return [][]expr.Any{
		nft.Rule(f.Remembered(c.clients, c.good), f.Remember(c.clients, p.affinity), f.TranslateChosen()),
		nft.Rule(f.Chosen(count, first, all), f.Forget(c.clients), f.Remember(c.clients, p.affinity), f.TranslateChosen()),
		random,
	}
}

// external are the rules for traffic that comes from outside, or goes the way of such traffic. If it may go to another node,
// it gets this node's address, so that the answer comes back here. If it must stay on the node, it keeps its own; but Pods
// and the node itself are sent anywhere, as if they had gone out and come back.
func (t *table) external(p port) (out [][]expr.Any) {
	cluster, local := nft.Goto(chainName(p, string(toCluster))), nft.Goto(chainName(p, string(toLocal)))
	if p.external == policyCluster {
		return [][]expr.Any{nft.SetMark(t.mark), cluster}
	}
	for _, c := range t.clusters {
		if c.Addr().Is6() == p.six {
			out = append(out, nft.Rule(nft.From(c), cluster))
		}
	}
	out = append(out, nft.Rule(nft.FromLocal(), nft.SetMark(t.mark)), nft.Rule(nft.FromLocal(), cluster))
	if p.external == policyLocalNone {
		return append(out, nft.Drop())
	}
	return append(out, local)
}

// firewall are the rules that let only some use the address of a load balancer.
func firewall(p port) (out [][]expr.Any) {
	next := nft.Goto(rejectChain)
	if p.external != policyNone {
		next = nft.Goto(chainName(p, string(toExternal)))
	}
	for _, s := range p.sources {
		out = append(out, nft.Rule(nft.From(s), next))
	}
	return append(out, nft.Drop())
}
