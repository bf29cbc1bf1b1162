package servicetable

import (
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// The chains of every table.
const (
	servicesChain = "services"
	outsideChain  = "from-outside"
	rejectChain   = "reject"
)

// create replaces the table in the kernel by one with everything that does not depend on Services.
func (t *Table) create(c *nftables.Conn) error {
	t.handle = nft.Renew(c, t.Name)
	t.families = nil
	t.have, t.chains, t.stale = map[key]plan{}, map[string]*chain{}, map[string]time.Time{}
	for k := range t.services {
		t.dirty[k] = true
	}
	for _, f := range nft.Families() {
		sets, err := t.sets(c, f)
		if err != nil {
			return err
		}
		t.families = append(t.families, sets)
	}
	rule := func(chain *nftables.Chain, words ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: t.handle, Chain: chain, Exprs: nft.Rule(words...)})
	}
	reject := t.chain(c, rejectChain)
	rule(reject, nft.Protocol(tcp), nft.RejectTCP())
	rule(reject, nft.Reject())
	t.markOutside(t.chain(c, outsideChain), rule)
	t.dispatch(t.chain(c, servicesChain), rule)

	in := t.hook(c, "prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	rule(in, nft.Jump(servicesChain))
	out := t.hook(c, "output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	rule(out, nft.Jump(servicesChain))
	post := t.hook(c, "postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	rule(post, nft.HasMark(t.Mark), nft.FlipMark(t.Mark), nft.Masquerade())
	for _, f := range t.families {
		// A Pod that reaches itself through a Service would answer itself directly, and drop an answer with the wrong source address.
		rule(post, f.Match(), nft.Translated(), f.LoadPair(), nft.Element(f.hairpin.set), nft.Masquerade())
	}
	return nil
}

func (t *Table) chain(c *nftables.Conn, name string) *nftables.Chain {
	return c.AddChain(&nftables.Chain{Table: t.handle, Name: name})
}

func (t *Table) hook(c *nftables.Conn, name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return c.AddChain(&nftables.Chain{Table: t.handle, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
}

func (t *Table) sets(c *nftables.Conn, f nft.Family) (*family, error) {
	ports := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	out := &family{
		Family: f,
		vips: newElements(&nftables.Set{Table: t.handle, Name: "vips" + f.Digit(), IsMap: true, Concatenation: true,
			KeyType: f.Tuple(), DataType: nftables.TypeVerdict}),
		nodePorts: newElements(&nftables.Set{Table: t.handle, Name: "node-ports" + f.Digit(), IsMap: true, Concatenation: true,
			KeyType: ports, DataType: nftables.TypeVerdict}),
		clusterIPs: newElements(&nftables.Set{Table: t.handle, Name: "cluster-ips" + f.Digit(), KeyType: f.AddrType}),
		hairpin:    newElements(&nftables.Set{Table: t.handle, Name: "hairpin" + f.Digit(), Concatenation: true, KeyType: f.Pair()}),
		direct: endpointMap{set: &nftables.Set{Table: t.handle, Name: "endpoints" + f.Digit(), IsMap: true, Concatenation: true,
			KeyType: f.Numbers(), DataType: f.Zone()}},
		picks: map[int]bool{}, owners: map[string]key{},
	}
	for _, s := range []*nftables.Set{out.vips.set, out.nodePorts.set, out.clusterIPs.set, out.hairpin.set, out.direct.set} {
		if err := nft.AddSet(c, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// markOutside marks packets that do not come from a Pod for masquerading: the endpoint may be on another node, and its
// answer must come back here.
func (t *Table) markOutside(chain *nftables.Chain, rule func(*nftables.Chain, ...[]expr.Any)) {
	for _, p := range t.ClusterCIDRs {
		rule(chain, nft.From(p), nft.Return())
	}
	rule(chain, nft.SetMark(t.Mark))
}

// dispatch sends packets to the chains of Services by their destination.
func (t *Table) dispatch(chain *nftables.Chain, rule func(*nftables.Chain, ...[]expr.Any)) {
	loopback := map[bool]netip.Prefix{false: netip.MustParsePrefix("127.0.0.0/8"), true: netip.MustParsePrefix("::1/128")}
	for _, f := range t.families {
		if t.knowsCluster(f.Is6()) {
			rule(chain, f.Match(), f.LoadDestination(), nft.Element(f.clusterIPs.set), nft.Jump(outsideChain))
		}
		rule(chain, f.Match(), f.LoadTuple(), nft.Switch(f.vips.set))
		// Node ports do not apply to localhost, where other programs may use them.
		rule(chain, nft.To(loopback[f.Is6()]), nft.Return())
		rule(chain, f.Match(), nft.ToLocal(), nft.LoadPort(), nft.Switch(f.nodePorts.set))
		// The node itself may have the address of a Service, such as that of the cluster DNS.
		rule(chain, f.Match(), nft.ToLocal(), nft.Return())
		rule(chain, f.Match(), f.LoadDestination(), nft.Element(f.clusterIPs.set), nft.Goto(rejectChain))
	}
	for _, p := range t.ServiceCIDRs {
		rule(chain, nft.To(p), nft.Drop())
	}
}

// knowsCluster reports whether the networks of Pods are known for an address family.
func (t *Table) knowsCluster(six bool) bool {
	for _, p := range t.ClusterCIDRs {
		if p.Addr().Is6() == six {
			return true
		}
	}
	return false
}
