package servicetable

import (
	"net/netip"
	"slices"
)

// group numbers the endpoints that a random number chooses from, without gaps.
type group struct {
	endpoints []netip.AddrPort
}

// move is a number whose endpoint changes.
type move struct {
	number int
	had    bool           // there was an endpoint before
	now    netip.AddrPort // the new endpoint; invalid for none
}

// update changes a group to the endpoints in want, which are sorted, and returns the numbers that change. New endpoints get the numbers of
// removed ones, and the last endpoints move into the gaps that are left. All others keep their numbers.
func (g *group) update(want []netip.AddrPort) (moves []move) {
	removed, added := difference(g.endpoints, want)
	next := slices.Clone(g.endpoints)
	var holes []int
	for i, a := range next {
		if _, found := slices.BinarySearchFunc(removed, a, netip.AddrPort.Compare); found {
			holes = append(holes, i)
		}
	}
	for _, a := range added {
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

// difference returns the elements that only have contains, and those that only want contains. want is sorted, and so are the results.
func difference(have, want []netip.AddrPort) (removed, added []netip.AddrPort) {
	sorted := slices.SortedFunc(slices.Values(have), netip.AddrPort.Compare)
	for _, a := range sorted {
		if _, found := slices.BinarySearchFunc(want, a, netip.AddrPort.Compare); !found {
			removed = append(removed, a)
		}
	}
	for _, a := range want {
		if _, found := slices.BinarySearchFunc(sorted, a, netip.AddrPort.Compare); !found {
			added = append(added, a)
		}
	}
	return removed, added
}
