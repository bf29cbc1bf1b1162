package service

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/google/nftables"

	"proa.dev/network/nft"
)

// The names of the sets of a chain with affinity begin so.
const (
	clientsPrefix = "clients-"
	goodPrefix    = "good-"
)

// maxClients is how many clients are remembered for one chain; others are sent anywhere.
const maxClients = 1 << 18

// reclient gives a chain a memory if it shall have one, and says for which endpoints it counts. It must be called while the
// chain still has its former endpoints.
func (tx *transaction) reclient(have *chain, want wantedChain) error {
	if want.affinity == 0 {
		tx.forgetClients(have)
		return nil
	}
	if have.clients == nil {
		return tx.rememberClients(have, want)
	}
	gone, come := difference(have.group.endpoints, want.endpoints)
	return errors.Join(inChunks(have.good, goodElements(gone), tx.conn.SetDeleteElements),
		inChunks(have.good, goodElements(come), tx.conn.SetAddElements))
}

func (tx *transaction) rememberClients(have *chain, want wantedChain) error {
	f := want.family
	have.clients = &nftables.Set{Table: tx.handle, Name: clientsPrefix + want.name, IsMap: true, Dynamic: true, HasTimeout: true, Size: maxClients,
		KeyType: f.AddrType, DataType: f.Zone()}
	have.good = &nftables.Set{Table: tx.handle, Name: goodPrefix + want.name, Concatenation: true, KeyType: f.Zone()}
	return errors.Join(nft.AddSet(tx.conn, have.clients), nft.AddSet(tx.conn, have.good),
		inChunks(have.clients, tx.saved[have.clients.Name], tx.conn.SetAddElements),
		inChunks(have.good, goodElements(want.endpoints), tx.conn.SetAddElements))
}

// forgetClients takes the memory away, if there is one. The rules that use it go in the same transaction.
func (tx *transaction) forgetClients(have *chain) {
	if have.clients != nil {
		tx.unused = append(tx.unused, have.clients, have.good)
		have.clients, have.good = nil, nil
	}
}

func goodElements(list []netip.AddrPort) (out []nftables.SetElement) {
	for _, a := range list {
		out = append(out, nftables.SetElement{Key: nft.Key(a.Addr(), a.Port())})
	}
	return out
}

// saveClients reads who was sent where from the table of an earlier process, so that clients stay where they are. An endpoint
// that is gone is noticed when the client comes.
func (t *table) saveClients() map[string][]nftables.SetElement {
	out := map[string][]nftables.SetElement{}
	_ = t.kernel.Do(func(c *nftables.Conn) error {
		old := &nftables.Table{Family: nftables.TableFamilyINet, Name: t.name}
		sets, err := c.GetSets(old)
		if err != nil {
			return nil //nolint:nilerr // there is no such table
		}
		for _, s := range sets {
			if !strings.HasPrefix(s.Name, clientsPrefix) {
				continue
			}
			s.Table = old
			list, err := c.GetSetElements(s)
			if err != nil {
				continue
			}
			for _, e := range list {
				if e.Expires > 0 {
					out[s.Name] = append(out[s.Name], nftables.SetElement{Key: e.Key, Val: e.Val, Timeout: e.Expires})
				}
			}
		}
		return nil
	})
	return out
}
