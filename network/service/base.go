package service

import (
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// The chains that are always there.
const (
	servicesChain = "services"
	outsideChain  = "from-outside"
	rejectChain   = "reject"
)

// base begins the table anew, with everything that does not depend on Services.
func (t *table) base(c *nftables.Conn) error {
	t.handle = nft.Renew(c, t.name)
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
	t.outside(t.chain(c, outsideChain), rule)
	t.dispatch(t.chain(c, servicesChain), rule)

	in := t.hook(c, "prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	rule(in, nft.Jump(servicesChain))
	out := t.hook(c, "output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	rule(out, nft.Jump(servicesChain))
	post := t.hook(c, "postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	rule(post, nft.HasMark(t.mark), nft.FlipMark(t.mark), nft.Masquerade())
	for _, f := range t.families {
		// A Pod that was sent to itself would answer itself directly, and not know its own answer.
		rule(post, f.Match(), nft.Translated(), f.LoadPair(), nft.Element(f.hairpin.set), nft.Masquerade())
	}
	return nil
}

func (t *table) chain(c *nftables.Conn, name string) *nftables.Chain {
	return c.AddChain(&nftables.Chain{Table: t.handle, Name: name})
}

func (t *table) hook(c *nftables.Conn, name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
	return c.AddChain(&nftables.Chain{Table: t.handle, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
}

func (t *table) sets(c *nftables.Conn, f nft.Family) (*family, error) {
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

// outside marks what does not come from a Pod, so that it gets the node's address: the endpoint may be on another node, and
// its answer must come back here.
func (t *table) outside(chain *nftables.Chain, rule func(*nftables.Chain, ...[]expr.Any)) {
	for _, p := range t.clusters {
		rule(chain, nft.From(p), nft.Return())
	}
	rule(chain, nft.SetMark(t.mark))
}

// dispatch sends packets to the chains of Services by what they are sent to.
func (t *table) dispatch(chain *nftables.Chain, rule func(*nftables.Chain, ...[]expr.Any)) {
	loopback := map[bool]netip.Prefix{false: netip.MustParsePrefix("127.0.0.0/8"), true: netip.MustParsePrefix("::1/128")}
	for _, f := range t.families {
		if t.inside(f.Is6()) {
			rule(chain, f.Match(), f.LoadDestination(), nft.Element(f.clusterIPs.set), nft.Jump(outsideChain))
		}
		rule(chain, f.Match(), f.LoadTuple(), nft.Switch(f.vips.set))
		// Nobody listens there for Services: what other programs have on localhost stays theirs.
		rule(chain, nft.To(loopback[f.Is6()]), nft.Return())
		rule(chain, f.Match(), nft.ToLocal(), nft.LoadPort(), nft.Switch(f.nodePorts.set))
		// The node itself may have the address of a Service, such as that of the cluster's DNS.
		rule(chain, f.Match(), nft.ToLocal(), nft.Return())
		rule(chain, f.Match(), f.LoadDestination(), nft.Element(f.clusterIPs.set), nft.Goto(rejectChain))
	}
	for _, p := range t.settings.services {
		rule(chain, nft.To(p), nft.Drop())
	}
}

// inside tells whether it is known who is inside the cluster.
func (t *table) inside(six bool) bool {
	for _, p := range t.clusters {
		if p.Addr().Is6() == six {
			return true
		}
	}
	return false
}
