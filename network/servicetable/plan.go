package servicetable

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// plan is the part of the table that belongs to one Service: its chains, the endpoints of addresses that need no chain,
// and the elements that lead to both.
type plan struct {
	owner  string
	ports  []Port
	chains map[string]wantedChain
	direct map[directKey]*direct
	claims map[elementKey]string
}

// elementKey names an element of a set.
type elementKey struct {
	set *elements
	key string
}

// directKey is an address, protocol and port that leads to endpoints without a chain.
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

// plan translates the ports of a Service into chains and elements.
func (tx *transaction) plan(k key, ports []Port) plan {
	out := plan{owner: ownerName(k, ports), ports: ports, chains: map[string]wantedChain{}, direct: map[directKey]*direct{},
		claims: map[elementKey]string{}}
	for _, p := range ports {
		f := tx.families[0]
		if p.IPv6 {
			f = tx.families[1]
		}
		out.claims[elementKey{f.clusterIPs, string(nft.Key(p.ClusterIP))}] = present
		for _, a := range p.Hairpin {
			out.claims[elementKey{f.hairpin, string(nft.Key(a, a))}] = present
		}
		if id, ok := needsNoChain(k, p, f); ok {
			tx.pick(f, len(p.Cluster))
			out.direct[id] = &direct{p.Cluster, &group{}}
			out.claims[elementKey{f.vips, id.tuple}] = gotoPrefix + pickName(f, len(p.Cluster))
			continue
		}
		for _, c := range tx.chainsOf(p, f) {
			out.chains[c.name] = c
		}
		for _, v := range p.VIPs {
			out.claims[elementKey{f.vips, string(nft.Key(v.Addr, p.Protocol, v.Port))}] = elementValue(p, v.Target)
		}
		if p.NodePort != 0 {
			out.claims[elementKey{f.nodePorts, string(nft.Key(p.Protocol, p.NodePort))}] = elementValue(p, p.NodePortTarget)
		}
	}
	return out
}

// ownerName identifies a Service among the claims to an element. The names of older Services sort first.
func ownerName(k key, ports []Port) string {
	if len(ports) == 0 {
		return k.String()
	}
	return fmt.Sprintf("%020d %s", max(0, ports[0].Created.Unix()), k)
}

// needsNoChain reports whether a port can do without a chain: it has one address, which leads to any endpoint, and no
// other Service has that address. Nearly all Services are like that.
func needsNoChain(k key, p Port, f *family) (directKey, bool) {
	if len(p.VIPs) != 1 || p.VIPs[0].Target != ToCluster || p.NodePort != 0 || p.Affinity != 0 {
		return directKey{}, false
	}
	id := directKey{f, string(nft.Key(p.VIPs[0].Addr, p.Protocol, p.VIPs[0].Port))}
	owner, taken := f.owners[id.tuple]
	return id, !taken || owner == k
}

func pickName(f *family, count int) string { return fmt.Sprintf("pick%s-%d", f.Digit(), count) }

// pick ensures that there is a chain that chooses one of count endpoints.
func (tx *transaction) pick(f *family, count int) {
	if f.picks[count] {
		return
	}
	f.picks[count] = true
	c := tx.conn.AddChain(&nftables.Chain{Table: tx.handle, Name: pickName(f, count)})
	tx.conn.AddRule(&nftables.Rule{Table: tx.handle, Chain: c,
		Exprs: nft.Rule(f.LoadTuple(), f.Numbered(uint32(count)), nft.Find(f.direct.set), f.Translate())})
}

// elementValue returns the value of an element that leads to a target.
func elementValue(p Port, to Target) string {
	switch to {
	case ToDrop:
		return string(ToDrop)
	case ToReject:
		return gotoPrefix + rejectChain
	default:
		return gotoPrefix + chainName(p, string(to))
	}
}

// chainsOf returns the chains that a port needs.
func (t *Table) chainsOf(p Port, f *family) (out []wantedChain) {
	choose := func(to Target, endpoints []netip.AddrPort) {
		if len(endpoints) > 0 {
			out = append(out, wantedChain{
				name: chainName(p, string(to)), family: f, text: fmt.Sprint("choose ", p.Affinity), endpoints: endpoints,
				affinity: p.Affinity,
				rules:    func(c *chain) [][]expr.Any { return f.choosingRules(c, p) },
			})
		}
	}
	choose(ToCluster, p.Cluster)
	choose(ToLocal, p.Local)
	if p.External != ExternalNone {
		out = append(out, wantedChain{
			name: chainName(p, string(ToExternal)), family: f, text: string(p.External),
			rules: func(*chain) [][]expr.Any { return t.externalRules(p) },
		})
	}
	if len(p.Sources) > 0 {
		out = append(out, wantedChain{
			name: chainName(p, string(ToFirewall)), family: f, text: fmt.Sprint(p.Sources, p.External),
			rules: func(*chain) [][]expr.Any { return firewallRules(p) },
		})
	}
	return out
}

// choosingRules returns the rules that send a connection to one of the endpoints. With affinity, a client goes to its
// former endpoint if that still exists. If no more clients can be remembered, the choice is random.
func (f *family) choosingRules(c *chain, p Port) [][]expr.Any {
	count := uint32(len(c.group.endpoints))
	random := nft.Rule(nft.Random(count, c.first), nft.Find(c.set), f.Translate())
	a := c.affinity
	if a == nil {
		return [][]expr.Any{random}
	}
	remember, translate := nft.RememberClient(a.clients, p.Affinity), nft.Rule(nft.LoadEndpoint(a.good), nft.ClearNumber(), f.Translate())
	return [][]expr.Any{
		nft.Rule(f.LoadRemembered(a.clients), nft.HasEndpoint(a.good), remember, translate),
		nft.Rule(f.LoadChosen(count, a.numbers), nft.ForgetClient(a.clients), remember, translate),
		nft.Rule(nft.ClearNumber(), random),
	}
}

// externalRules returns the rules for traffic from outside. With the policy Cluster the source address becomes that of
// this node, because the endpoint may be on another node and its answer must come back here. With the policy Local the
// source address is kept; but Pods and the node itself may use any endpoint, as if their traffic had come from outside
// through another node.
func (t *Table) externalRules(p Port) (out [][]expr.Any) {
	cluster, local := nft.Goto(chainName(p, string(ToCluster))), nft.Goto(chainName(p, string(ToLocal)))
	if p.External == ExternalCluster {
		return [][]expr.Any{nft.SetMark(t.Mark), cluster}
	}
	for _, c := range t.ClusterCIDRs {
		if c.Addr().Is6() == p.IPv6 {
			out = append(out, nft.Rule(nft.From(c), cluster))
		}
	}
	out = append(out, nft.Rule(nft.FromLocal(), nft.SetMark(t.Mark)), nft.Rule(nft.FromLocal(), cluster))
	if p.External == ExternalLocalEmpty {
		return append(out, nft.Drop())
	}
	return append(out, local)
}

// firewallRules returns the rules that let only the allowed sources use the address of a load balancer.
func firewallRules(p Port) (out [][]expr.Any) {
	next := nft.Goto(rejectChain)
	if p.External != ExternalNone {
		next = nft.Goto(chainName(p, string(ToExternal)))
	}
	for _, s := range p.Sources {
		out = append(out, nft.Rule(nft.From(s), next))
	}
	return append(out, nft.Drop())
}
