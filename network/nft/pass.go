package nft

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// Pass lets packets from and to networks pass where a firewall of this machine drops whatever it forwards: Docker and ufw set
// the chain FORWARD of iptables so, and a packet must be accepted by every table. The rules are put first there, in the form
// in which iptables itself writes and reads them, with the tag as their comment. Calling it again adds only what is missing.
// What is dropped by rules of the other firewall, and not for want of one, stays dropped after ours.
func (k *Kernel) Pass(tag string, networks []netip.Prefix) (added int, err error) {
	err = k.foreign(func(c *nftables.Conn, chain *nftables.Chain, ours []*nftables.Rule) error {
		if chain.Policy == nil || *chain.Policy != nftables.ChainPolicyDrop {
			return nil
		}
		for _, p := range networks {
			if p.Addr().Is6() != (chain.Table.Family == nftables.TableFamilyIPv6) {
				continue
			}
			for _, comment := range []string{tag + " from " + p.String(), tag + " to " + p.String()} {
				if slices.ContainsFunc(ours, func(r *nftables.Rule) bool { return comment == commentOf(r) }) {
					continue
				}
				added++
				c.InsertRule(&nftables.Rule{
					Table: chain.Table, Chain: chain, Exprs: plain(p, comment == tag+" to "+p.String()),
					UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
				})
			}
		}
		return nil
	}, tag)
	return added, err
}

// Unpass takes the rules of a tag back.
func (k *Kernel) Unpass(tag string) error {
	return k.foreign(func(c *nftables.Conn, _ *nftables.Chain, ours []*nftables.Rule) error {
		for _, r := range ours {
			if err := c.DelRule(r); err != nil {
				return err
			}
		}
		return nil
	}, tag)
}

// foreign looks at the chains FORWARD of iptables, each with its rules that have the tag, in one transaction.
func (k *Kernel) foreign(look func(*nftables.Conn, *nftables.Chain, []*nftables.Rule) error, tag string) error {
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
				ours := slices.DeleteFunc(rules, func(r *nftables.Rule) bool {
					text := commentOf(r)
					return len(text) <= len(tag) || text[:len(tag)+1] != tag+" "
				})
				if err := look(c, chain, ours); err != nil {
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

// plain is the rule that accepts what comes from a network, or goes there, in a table of one family.
func plain(p netip.Prefix, to bool) []expr.Any {
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
