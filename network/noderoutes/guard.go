package noderoutes

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"proa.dev/network/nft"
)

// guard is the set of addresses that may send into the tunnel.
type guard struct {
	text string
}

// guardTunnel lets only nodes send into the tunnel, because packets from the tunnel count as packets of Pods. Tunnels
// of other clusters on this machine have the same port but other identifiers, and are not affected.
func (m *Mesh) guardTunnel(want wanted) error {
	text := fmt.Sprint(want.ends)
	if m.guard.text == text {
		return nil
	}
	if len(want.ends) == 0 {
		if err := m.kernel.Remove(m.Table); err != nil {
			return fmt.Errorf("remove the rules of the tunnel: %w", err)
		}
		m.guard.text = text
		return nil
	}
	err := m.kernel.Do(func(c *nftables.Conn) error {
		t := nft.Renew(c, m.Table)
		in := c.AddChain(&nftables.Chain{Name: "input", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
			Priority: nftables.ChainPriorityFilter})
		tunnel := c.AddChain(&nftables.Chain{Name: "tunnel", Table: t})
		rule := func(chain *nftables.Chain, words ...[]expr.Any) {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: nft.Rule(words...)})
		}
		rule(in, nft.Protocol(unix.IPPROTO_UDP), nft.ToPort(uint16(m.Port)), nft.TunnelID(m.ID), nft.Goto(tunnel.Name))
		for _, f := range nft.Families() {
			nodes := &nftables.Set{Table: t, Name: "nodes" + f.Digit(), KeyType: f.AddrType}
			if err := nft.AddSet(c, nodes, sources(want.ends, f)...); err != nil {
				return err
			}
			rule(tunnel, f.Match(), f.LoadSource(), nft.Element(nodes), nft.Return())
		}
		rule(tunnel, nft.Drop())
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the rules of the tunnel: %w", err)
	}
	m.guard.text = text
	return nil
}

func sources(ends []end, f nft.Family) (out []nftables.SetElement) {
	for _, e := range ends {
		if e.outside.Is6() == f.Is6() {
			out = append(out, nftables.SetElement{Key: nft.Key(e.outside)})
		}
	}
	return out
}

func removeGuard(table string) error {
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	return errors.Join(kernel.Remove(table), kernel.Close())
}
