package service

import (
	"errors"
	"hash/fnv"
	"net/netip"
	"strings"

	"github.com/google/nftables"

	"proa.dev/network/nft"
)

// The names of the maps of a chain with affinity begin so.
const (
	clientsPrefix = "clients-"
	numbersPrefix = "numbers-"
	goodPrefix    = "good-"
)

// maxClients is how many clients are remembered for one chain; others are sent anywhere.
const maxClients = 1 << 18

// numberSize is how many bytes the number of an endpoint has.
const numberSize = 4

// clientMemory is what a chain with session affinity has in the kernel. Each endpoint has a number, which it keeps when others come and go and
// when another process takes over.
type clientMemory struct {
	clients *nftables.Set // address of a client to the number of its endpoint
	numbers *nftables.Set // place in the group of endpoints to number: one of them is chosen for a new client
	good    *nftables.Set // number to endpoint
	endpointNumbers
}

// endpointNumbers has the numbers of endpoints, each of which has another one.
type endpointNumbers struct {
	of    map[netip.AddrPort]uint32
	taken map[uint32]bool
}

// number returns the number of an endpoint, and gives it one if it has none: a hash of its address and port, or the next one that is free.
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

// release gives the number of an endpoint back.
func (n *endpointNumbers) release(a netip.AddrPort) {
	delete(n.taken, n.of[a])
	delete(n.of, a)
}

// setAffinity gives a chain a memory of its clients if it shall have one, and says for which endpoints it counts. It must be called while
// the chain still has its former endpoints.
func (tx *transaction) setAffinity(have *chain, want wantedChain) error {
	if want.affinity == 0 {
		tx.forgetClients(have)
		return nil
	}
	if have.affinity == nil {
		return tx.rememberClients(have, want)
	}
	gone, come := difference(have.group.endpoints, want.endpoints)
	err := inChunks(have.affinity.good, have.affinity.goodElements(gone), tx.conn.SetDeleteElements)
	for _, a := range gone {
		have.affinity.release(a)
	}
	return errors.Join(err, inChunks(have.affinity.good, have.affinity.goodElements(come), tx.conn.SetAddElements))
}

func (tx *transaction) rememberClients(have *chain, want wantedChain) error {
	f := want.family
	a := &clientMemory{
		clients: &nftables.Set{Table: tx.handle, Name: clientsPrefix + want.name, IsMap: true, Dynamic: true, HasTimeout: true, Size: maxClients,
			KeyType: f.AddrType, DataType: nftables.TypeMark},
		numbers: &nftables.Set{Table: tx.handle, Name: numbersPrefix + want.name, IsMap: true, KeyType: nftables.TypeMark, DataType: nftables.TypeMark},
		good:    &nftables.Set{Table: tx.handle, Name: goodPrefix + want.name, IsMap: true, KeyType: nftables.TypeMark, DataType: f.Zone()},

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
		inChunks(a.clients, tx.saved[a.clients.Name], tx.conn.SetAddElements),
		inChunks(a.numbers, numbers, tx.conn.SetAddElements),
		inChunks(a.good, a.goodElements(want.endpoints), tx.conn.SetAddElements))
}

// moveNumbers brings the map of numbers to the places that the endpoints of a chain have now.
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
	return errors.Join(inChunks(numbers, del, tx.conn.SetDeleteElements), inChunks(numbers, add, tx.conn.SetAddElements))
}

// forgetClients takes the memory away, if there is one. The rules that use it go in the same transaction.
func (tx *transaction) forgetClients(have *chain) {
	if a := have.affinity; a != nil {
		tx.unused = append(tx.unused, a.clients, a.numbers, a.good)
		have.affinity = nil
	}
}

func (a *clientMemory) numberElement(place int, endpoint netip.AddrPort) nftables.SetElement {
	return nftables.SetElement{Key: nft.Native(uint32(place)), Val: nft.Native(a.number(endpoint))}
}

func (a *clientMemory) goodElements(list []netip.AddrPort) (out []nftables.SetElement) {
	for _, e := range list {
		out = append(out, nftables.SetElement{Key: nft.Native(a.number(e)), Val: nft.Key(e.Addr(), e.Port())})
	}
	return out
}

// saveClients reads who was sent where from the table of an earlier process, so that clients stay where they are. An endpoint
// that is gone is noticed when the client comes. What an older version has left, which had endpoints in place of numbers, is not used.
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
				if e.Expires > 0 && len(e.Val) == numberSize {
					out[s.Name] = append(out[s.Name], nftables.SetElement{Key: e.Key, Val: e.Val, Timeout: e.Expires})
				}
			}
		}
		return nil
	})
	return out
}
