package servicetable

import (
	"errors"
	"hash/fnv"
	"net/netip"
	"strings"

	"github.com/google/nftables"

	"proa.dev/network/nft"
)

// The prefixes of the names of the maps that a chain with session affinity has.
const (
	clientsPrefix = "clients-"
	numbersPrefix = "numbers-"
	goodPrefix    = "good-"
)

// maxClients is how many clients are remembered for one chain. Further clients have no affinity.
const maxClients = 1 << 18

// numberSize is the size of the number of an endpoint, in bytes.
const numberSize = 4

// clientSets are the maps of a chain with session affinity. Each endpoint has a number, which it keeps while other
// endpoints change and when another process takes over.
type clientSets struct {
	clients *nftables.Set // from the address of a client to the number of its endpoint
	numbers *nftables.Set // from the position in the group of endpoints to the number: a new client gets a random one
	good    *nftables.Set // from the number to the endpoint
	endpointNumbers
}

// endpointNumbers holds the unique numbers of endpoints.
type endpointNumbers struct {
	of    map[netip.AddrPort]uint32
	taken map[uint32]bool
}

// number returns the number of an endpoint. A new endpoint gets the hash of its address and port, or the next free number.
func (n *endpointNumbers) number(a netip.AddrPort) uint32 {
	if have, ok := n.of[a]; ok {
		return have
	}
	h := fnv.New32a()
	_, _ = h.Write(nft.Key(a.Addr(), a.Port()))
	out := h.Sum32()
	for n.taken[out] {
		out = out + 1
	}
	n.of[a], n.taken[out] = out, true
	return out
}

// release frees the number of an endpoint.
func (n *endpointNumbers) release(a netip.AddrPort) {
	delete(n.taken, n.of[a])
	delete(n.of, a)
}

// setAffinity creates, updates or removes the affinity maps of a chain. It must be called while the chain still has its former endpoints.
func (tx *transaction) setAffinity(have *chain, want wantedChain) error {
	if want.affinity == 0 {
		tx.forgetClients(have)
		return nil
	}
	if have.affinity == nil {
		return tx.rememberClients(have, want)
	}
	removed, added := difference(have.group.endpoints, want.endpoints)
	err := nft.InChunks(have.affinity.good, have.affinity.goodElements(removed), tx.conn.SetDeleteElements)
	for _, a := range removed {
		have.affinity.release(a)
	}
	return errors.Join(err, nft.InChunks(have.affinity.good, have.affinity.goodElements(added), tx.conn.SetAddElements))
}

func (tx *transaction) rememberClients(have *chain, want wantedChain) error {
	f := want.family
	a := &clientSets{
		clients: &nftables.Set{Table: tx.handle, Name: clientsPrefix + want.name, IsMap: true, Dynamic: true, HasTimeout: true,
			Size:    maxClients,
			KeyType: f.AddrType, DataType: nftables.TypeMark},
		numbers: &nftables.Set{Table: tx.handle, Name: numbersPrefix + want.name, IsMap: true, KeyType: nftables.TypeMark,
			DataType: nftables.TypeMark},
		good: &nftables.Set{Table: tx.handle, Name: goodPrefix + want.name, IsMap: true, KeyType: nftables.TypeMark, DataType: f.Zone()},

		endpointNumbers: endpointNumbers{map[netip.AddrPort]uint32{}, map[uint32]bool{}},
	}
	have.affinity = a
	var numbers []nftables.SetElement
	if have.group != nil {
		for i, endpoint := range have.group.endpoints {
			numbers = append(numbers, a.numberElement(i, endpoint))
		}
	}
	return errors.Join(nft.AddSet(tx.conn, a.clients), nft.AddSet(tx.conn, a.numbers), nft.AddSet(tx.conn, a.good),
		nft.InChunks(a.clients, tx.saved[a.clients.Name], tx.conn.SetAddElements),
		nft.InChunks(a.numbers, numbers, tx.conn.SetAddElements),
		nft.InChunks(a.good, a.goodElements(want.endpoints), tx.conn.SetAddElements))
}

// moveNumbers updates the map of numbers after endpoints of a chain have moved.
func (tx *transaction) moveNumbers(have *chain, moves []move) error {
	if have.affinity == nil {
		return nil
	}
	var del, add []nftables.SetElement
	for _, m := range moves {
		if m.had {
			del = append(del, nftables.SetElement{Key: nft.Native(uint32(m.number))})
		}
		if m.now.IsValid() {
			add = append(add, have.affinity.numberElement(m.number, m.now))
		}
	}
	numbers := have.affinity.numbers
	return errors.Join(nft.InChunks(numbers, del, tx.conn.SetDeleteElements), nft.InChunks(numbers, add, tx.conn.SetAddElements))
}

// forgetClients removes the affinity maps, if there are any. The rules that use them are removed in the same transaction.
func (tx *transaction) forgetClients(have *chain) {
	if a := have.affinity; a != nil {
		tx.unused = append(tx.unused, a.clients, a.numbers, a.good)
		have.affinity = nil
	}
}

func (a *clientSets) numberElement(position int, endpoint netip.AddrPort) nftables.SetElement {
	return nftables.SetElement{Key: nft.Native(uint32(position)), Val: nft.Native(a.number(endpoint))}
}

func (a *clientSets) goodElements(list []netip.AddrPort) (out []nftables.SetElement) {
	for _, e := range list {
		out = append(out, nftables.SetElement{Key: nft.Native(a.number(e)), Val: nft.Key(e.Addr(), e.Port())})
	}
	return out
}

// saveClients reads the clients from the table of an earlier process, so that they keep their endpoints. An endpoint
// that no longer exists is noticed when the client connects. The maps of an older version, which had endpoints in place
// of numbers, are ignored.
func (t *Table) saveClients() map[string][]nftables.SetElement {
	out := map[string][]nftables.SetElement{}
	_ = t.kernel.Do(func(c *nftables.Conn) error {
		old := &nftables.Table{Family: nftables.TableFamilyINet, Name: t.Name}
		sets, err := c.GetSets(old)
		if err != nil {
			return nil //nolint:nilerr // the table does not exist yet
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
				if e.Expires > 0 && len(e.Val) == numberSize {
					out[s.Name] = append(out[s.Name], nftables.SetElement{Key: e.Key, Val: e.Val, Timeout: e.Expires})
				}
			}
		}
		return nil
	})
	return out
}
