package service

import (
	"net/netip"
	"slices"
)

// group is endpoints that are chosen from by a random number: they are numbered without holes.
type group struct {
	endpoints []netip.AddrPort
}

// move is a number that has another endpoint than before, or none any more.
type move struct {
	number int
	had    bool
	now    netip.AddrPort
}

// update brings a group to the endpoints that are wanted, which are sorted. Those that stay keep their numbers as far as there
// are no holes: those that come take the numbers of those that go, and then the last ones move into what is left.
func (g *group) update(want []netip.AddrPort) (moves []move) {
	gone, come := difference(g.endpoints, want)
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
	for _, hole := range slices.Backward(holes) {
		last := len(next) - 1
		next[hole] = next[last]
		next = next[:last]
	}
	for i := range max(len(next), len(g.endpoints)) {
		m := move{number: i, had: i < len(g.endpoints)}
		if i < len(next) {
			m.now = next[i]
		}
		if !m.had || g.endpoints[i] != m.now {
			moves = append(moves, m)
		}
	}
	g.endpoints = next
	return moves
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
