package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"proa.dev/network/nft"
)

// sources is a table of the bridge family for frames that come from Pods.
//
// Packets must have a source address of the Pod: policies identify Pods by their addresses, so a Pod that could use
// another address would get the rights of another Pod. Behind the bridge it is no longer known from which port a packet
// came.
//
// Frames must be addressed to the node, which routes them: frames that are bridged from Pod to Pod would bypass the
// rules of Services and policies. Frames that the kernel itself redirects to another port, after the address of a
// Service was translated, were addressed to the node too.
type sources struct {
	missing bool // the kernel has no bridge filter
	known   map[string]bool
	ports   *nftables.Set // the interfaces of our Pods; other bridges are not affected
	from    [2]*nftables.Set
}

// sourceFamilies returns the address families of the sets in from.
func sourceFamilies() [2]nft.Family { return [2]nft.Family{nft.IPv4(), nft.IPv6()} }

// writeSources replaces the table by one for the attached Pods.
func (r *rules) writeSources(c Config, records []*record) error {
	s := &sources{known: map[string]bool{}}
	r.sources = s
	err := r.kernel.Do(func(conn *nftables.Conn) error {
		t := nft.RenewBridge(conn, c.Table)
		s.ports = &nftables.Set{Table: t, Name: "ports", KeyType: nft.Port()}
		for i, f := range sourceFamilies() {
			s.from[i] = &nftables.Set{Table: t, Name: "sources" + f.Digit(), Concatenation: true, KeyType: f.PortAndAddress()}
		}
		for _, set := range []*nftables.Set{s.ports, s.from[0], s.from[1]} {
			if err := nft.AddSet(conn, set); err != nil {
				return err
			}
		}
		s.chains(conn, t)
		for _, rec := range records {
			if !rec.Deleted {
				s.known[rec.HostIf] = true
				if err := s.elements(rec, conn.SetAddElements); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		s.missing = true
		c.Log.Warn("Pods of this node can send from each other's addresses, and network policies cannot tell them apart: the kernel has no nf_tables_bridge", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the rules of the bridge: %w", err)
	}
	return nil
}

func (s *sources) chains(conn *nftables.Conn, t *nftables.Table) {
	const beforeAll = -300
	priority := nftables.ChainPriority(beforeAll)
	in := conn.AddChain(&nftables.Chain{Name: "prerouting", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: &priority})
	check := conn.AddChain(&nftables.Chain{Name: "check", Table: t})
	rule := func(chain *nftables.Chain, words ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: nft.Rule(words...)})
	}
	rule(in, nft.LoadPortIn(), nft.Element(s.ports), nft.Goto(check.Name))
	four, six := nft.IPv4(), nft.IPv6()
	rule(check, nft.Carries(unix.ETH_P_IP), nft.ForNode(), four.LoadPortAndSource(), nft.Element(s.from[0]), nft.Accept())
	rule(check, nft.Carries(unix.ETH_P_ARP), nft.LoadPortAndClaim(), nft.Element(s.from[0]), nft.Accept())
	for _, meant := range [][]expr.Any{nft.ForNode(), nft.ForMany()} {
		rule(check, nft.Carries(unix.ETH_P_IPV6), meant, six.LoadPortAndSource(), nft.Element(s.from[1]), nft.Accept())
		// Addresses of neighbor discovery, which are never forwarded.
		for _, p := range []string{"fe80::/10", "::/128"} {
			rule(check, nft.Carries(unix.ETH_P_IPV6), meant, nft.SourceWithin(netip.MustParsePrefix(p)), nft.Accept())
		}
	}
	rule(check, nft.Drop())
	between := conn.AddChain(&nftables.Chain{Name: "forward", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: &priority})
	rule(between, nft.NotForNode(), nft.LoadPortIn(), nft.Element(s.ports), nft.LoadPortOut(), nft.Element(s.ports), nft.Drop())
}

// elements calls do with the elements of a Pod, to add or delete them.
func (s *sources) elements(rec *record, do func(*nftables.Set, []nftables.SetElement) error) error {
	if err := do(s.ports, []nftables.SetElement{{Key: nft.InterfaceKey(rec.HostIf)}}); err != nil {
		return err
	}
	for i, f := range sourceFamilies() {
		var list []nftables.SetElement
		for _, a := range rec.Addresses {
			if a.Is6() == f.Is6() {
				list = append(list, nftables.SetElement{Key: append(nft.InterfaceKey(rec.HostIf), nft.Key(a)...)})
			}
		}
		if len(list) == 0 {
			continue
		}
		if err := do(s.from[i], list); err != nil {
			return err
		}
	}
	return nil
}

// forgetSources removes deleted Pods from the table.
func (r *rules) forgetSources(records []*record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sources.missing {
		return nil
	}
	err := r.kernel.Do(func(c *nftables.Conn) error {
		for _, rec := range records {
			if r.sources.known[rec.HostIf] {
				if err := r.sources.elements(rec, c.SetDeleteElements); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("take Pods out of the rules of the bridge: %w", err)
	}
	for _, rec := range records {
		delete(r.sources.known, rec.HostIf)
	}
	return nil
}
