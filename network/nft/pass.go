package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// Pass accepts packets from and to networks where another firewall of this machine drops forwarded packets by default:
// Docker and ufw configure the iptables chain FORWARD so, and a packet must be accepted by every table. The rules are
// inserted first there, in the format of iptables, with the tag as comment. Calling it again adds only missing rules.
// Packets that explicit rules of the other firewall drop stay dropped in its other chains.
func (k *Kernel) Pass(tag string, networks []netip.Prefix) (added int, err error) {
	err = k.foreign(func(c *nftables.Conn, chain *nftables.Chain, tagged []*nftables.Rule) error {
		if chain.Policy == nil || *chain.Policy != nftables.ChainPolicyDrop {
			return nil
		}
		for _, p := range networks {
			if p.Addr().Is6() != (chain.Table.Family == nftables.TableFamilyIPv6) {
				continue
			}
			for _, comment := range []string{tag + " from " + p.String(), tag + " to " + p.String()} {
				if slices.ContainsFunc(tagged, func(r *nftables.Rule) bool { return comment == commentOf(r) }) {
					continue
				}
				added++
				c.InsertRule(&nftables.Rule{
					Table: chain.Table, Chain: chain, Exprs: acceptRule(p, comment == tag+" to "+p.String()),
					UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
				})
			}
		}
		return nil
	}, tag)
	return added, err
}

// Unpass removes the rules of a tag.
func (k *Kernel) Unpass(tag string) error {
	return k.foreign(func(c *nftables.Conn, _ *nftables.Chain, tagged []*nftables.Rule) error {
		for _, r := range tagged {
			if err := c.DelRule(r); err != nil {
				return err
			}
		}
		return nil
	}, tag)
}

// foreign calls visit for the FORWARD chains of iptables, each with its rules that have the tag, in one transaction.
func (k *Kernel) foreign(visit func(*nftables.Conn, *nftables.Chain, []*nftables.Rule) error, tag string) error {
	return k.Do(func(c *nftables.Conn) error {
		for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
			chains, err := c.ListChainsOfTableFamily(family)
			if err != nil {
				return err
			}
			for _, chain := range chains {
				if chain.Table.Name != "filter" || chain.Name != "FORWARD" {
					continue
				}
				chain.Table.Family = family
				rules, err := c.GetRules(chain.Table, chain)
				if err != nil {
					return err
				}
				tagged := slices.DeleteFunc(rules, func(r *nftables.Rule) bool {
					text := commentOf(r)
					return len(text) <= len(tag) || text[:len(tag)+1] != tag+" "
				})
				if err := visit(c, chain, tagged); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func commentOf(r *nftables.Rule) string {
	text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return text
}

// acceptRule returns the rule that accepts packets from or to a network, in a table of one family.
func acceptRule(p netip.Prefix, to bool) []expr.Any {
	offset, size := uint32(12), uint32(4)
	if p.Addr().Is6() {
		offset, size = 8, 16
	}
	if to {
		offset += size
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}
