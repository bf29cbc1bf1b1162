package service

import (
	"math/bits"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"proa.dev/network/nft"
)

// group is the endpoints that one chain chooses from. They have consecutive numbers in the map of all endpoints, so that a
// random number from the first to the last is an endpoint.
type group struct {
	first, room uint32
	endpoints   []netip.AddrPort // by their number, from first on
}

// slots gives out ranges of numbers. Their sizes are powers of two, so that what one group gives back fits another, and a
// group that grows by one seldom moves.
type slots struct {
	next uint32
	free [32][]uint32
}

func (s *slots) take(n int) (first, room uint32) {
	class := bits.Len(uint(n - 1))
	if list := s.free[class]; len(list) > 0 {
		first = list[len(list)-1]
		s.free[class] = list[:len(list)-1]
	} else {
		first = s.next
		s.next += 1 << class
	}
	return first, 1 << class
}

func (s *slots) give(g *group) {
	if g.room > 0 {
		class := bits.Len32(g.room - 1)
		s.free[class] = append(s.free[class], g.first)
	}
}

// pool is the map of all endpoints of a family, with the changes of the next transaction.
type pool struct {
	set      *nftables.Set
	slots    slots
	del, add []nftables.SetElement
}

func (p *pool) put(n uint32, a netip.AddrPort) {
	p.add = append(p.add, nftables.SetElement{Key: nft.Native(n), Val: nft.Key(a.Addr(), a.Port())})
}

func (p *pool) remove(n uint32) { p.del = append(p.del, nftables.SetElement{Key: nft.Native(n)}) }

// update brings a group to the endpoints that are wanted. Those that stay keep their numbers, as far as there are no holes.
func (p *pool) update(g *group, want []netip.AddrPort) (gone, come []netip.AddrPort) {
	gone, come = difference(g.endpoints, want)
	if len(want) == 0 {
		p.drop(g)
		return gone, come
	}
	if len(want) > int(g.room) {
		p.drop(g)
		g.first, g.room = p.slots.take(len(want))
		g.endpoints = slices.Clone(want)
		for i, a := range want {
			p.put(g.first+uint32(i), a)
		}
		return gone, come
	}
	// Those that go leave holes; those that come fill them first, then the last ones move into what is left.
	next := slices.Clone(g.endpoints)
	var holes []int
	for i, a := range next {
		if _, found := slices.BinarySearchFunc(gone, a, compareAddrPort); found {
			holes = append(holes, i)
		}
	}
	for _, a := range come {
		if len(holes) > 0 {
			next[holes[0]] = a
			holes = holes[1:]
		} else {
			next = append(next, a)
		}
	}
	for i := len(holes) - 1; i >= 0; i-- {
		last := len(next) - 1
		next[holes[i]] = next[last]
		next = next[:last]
	}
	for i := range max(len(next), len(g.endpoints)) {
		n := g.first + uint32(i)
		switch {
		case i >= len(next):
			p.remove(n)
		case i >= len(g.endpoints):
			p.put(n, next[i])
		case g.endpoints[i] != next[i]:
			p.remove(n)
			p.put(n, next[i])
		}
	}
	g.endpoints = next
	return gone, come
}

func (p *pool) drop(g *group) {
	for i := range g.endpoints {
		p.remove(g.first + uint32(i))
	}
	p.slots.give(g)
	*g = group{}
}

// difference compares a list in any order with a sorted one. Both results are sorted.
func difference(have, want []netip.AddrPort) (gone, come []netip.AddrPort) {
	sorted := slices.SortedFunc(slices.Values(have), compareAddrPort)
	for _, a := range sorted {
		if _, found := slices.BinarySearchFunc(want, a, compareAddrPort); !found {
			gone = append(gone, a)
		}
	}
	for _, a := range want {
		if _, found := slices.BinarySearchFunc(sorted, a, compareAddrPort); !found {
			come = append(come, a)
		}
	}
	return gone, come
}
