package service

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// plan is what one Service has in the table: its chains, the endpoints that packets are sent to directly, and the elements
// that lead to both.
type plan struct {
	owner  string
	ports  []port
	chains map[string]wantedChain
	direct map[directKey]*direct
	claims map[place]string
}

// place is an element of a set.
type place struct {
	set *elements
	key string
}

// directKey is an address, protocol and port.
type directKey struct {
	family *family
	tuple  string
}

func (d directKey) element(number int) []byte {
	return append([]byte(d.tuple), nft.Native(uint32(number))...)
}

type direct struct {
	want  []netip.AddrPort
	group *group
}

// plan translates what was decided into the words of the table.
func (tx *transaction) plan(k key, ports []port) plan {
	out := plan{owner: ownerName(k, ports), ports: ports, chains: map[string]wantedChain{}, direct: map[directKey]*direct{}, claims: map[place]string{}}
	for _, p := range ports {
		f := tx.families[0]
		if p.six {
			f = tx.families[1]
		}
		out.claims[place{f.clusterIPs, string(nft.Key(p.clusterIP))}] = present
		for _, a := range p.hairpin {
			out.claims[place{f.hairpin, string(nft.Key(a, a))}] = present
		}
		if id, ok := simple(k, p, f); ok {
			tx.pick(f, len(p.cluster))
			out.direct[id] = &direct{p.cluster, &group{}}
			out.claims[place{f.vips, id.tuple}] = gotoPrefix + pickName(f, len(p.cluster))
			continue
		}
		for _, c := range tx.chainsOf(p, f) {
			out.chains[c.name] = c
		}
		for _, v := range p.vips {
			out.claims[place{f.vips, string(nft.Key(v.addr, p.protocol, v.port))}] = verdict(p, v.to)
		}
		if p.nodePort != 0 {
			out.claims[place{f.nodePorts, string(nft.Key(p.protocol, p.nodePort))}] = verdict(p, p.nodeTo)
		}
	}
	return out
}

// ownerName is how a Service is known to what it shares with others: older ones come first.
func ownerName(k key, ports []port) string {
	if len(ports) == 0 {
		return k.String()
	}
	return fmt.Sprintf("%020d %s", max(0, ports[0].since.Unix()), k)
}

// simple tells whether a port needs no chain of its own: it has one address, which leads to any endpoint. That is how nearly
// all Services are. An address that another Service has too is not simple.
func simple(k key, p port, f *family) (directKey, bool) {
	if len(p.vips) != 1 || p.vips[0].to != toCluster || p.nodePort != 0 || p.affinity != 0 {
		return directKey{}, false
	}
	id := directKey{f, string(nft.Key(p.vips[0].addr, p.protocol, p.vips[0].port))}
	owner, taken := f.owners[id.tuple]
	return id, !taken || owner == k
}

func pickName(f *family, count int) string { return fmt.Sprintf("pick%s-%d", f.Digit(), count) }

// pick makes sure that there is a chain that chooses one of so many endpoints.
func (tx *transaction) pick(f *family, count int) {
	if f.picks[count] {
		return
	}
	f.picks[count] = true
	c := tx.conn.AddChain(&nftables.Chain{Table: tx.handle, Name: pickName(f, count)})
	tx.conn.AddRule(&nftables.Rule{Table: tx.handle, Chain: c, Exprs: nft.Rule(f.LoadTuple(), f.Numbered(uint32(count)), nft.Find(f.direct.set), f.Translate())})
}

// verdict is the value of an element that leads to a target.
func verdict(p port, to target) string {
	switch to {
	case toNobody:
		return string(toNobody)
	case toReject:
		return gotoPrefix + rejectChain
	default:
		return gotoPrefix + chainName(p, string(to))
	}
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
	count := uint32(len(c.group.endpoints))
	random := nft.Rule(nft.Random(count, c.first), nft.Find(c.set), f.Translate())
	a := c.affinity
	if a == nil {
		return [][]expr.Any{random}
	}
	remember, translate := nft.RememberClient(a.clients, p.affinity), nft.Rule(nft.LoadEndpoint(a.good), nft.ClearNumber(), f.Translate())
	return [][]expr.Any{
		nft.Rule(f.LoadRemembered(a.clients), nft.HasEndpoint(a.good), remember, translate),
		nft.Rule(f.LoadChosen(count, a.numbers), nft.ForgetClient(a.clients), remember, translate),
		nft.Rule(nft.ClearNumber(), random),
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
