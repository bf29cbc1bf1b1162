package topology

import (
	"fmt"
)

// Hint is a set of NUMA nodes from which something could be given. Nodes of 0 stand for any.
type Hint struct {
	Nodes Mask
	// Preferred says that it is not wider than it must be.
	Preferred bool
}

// Policy says what becomes of a Pod whose resources are not all near each other.
type Policy string

// The policies.
const (
	None       Policy = "none"
	BestEffort Policy = "best-effort"
	Restricted Policy = "restricted"
	SingleNode Policy = "single-numa-node"
)

// ParsePolicy reads a policy; empty is none.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(text); p {
	case "":
		return None, nil
	case None, BestEffort, Restricted, SingleNode:
		return p, nil
	}
	return "", fmt.Errorf("unknown policy: %q; it may be none, best-effort, restricted or single-numa-node", text)
}

// maxNodes is how many NUMA nodes there may be: the work grows exponentially with them.
const maxNodes = 8

// merge finds the hint that suits all. Every element of wishes has what one resource could be given from: nil if it does not
// matter, empty if it cannot be given at all. admit says whether the policy lets the Pod run like that.
func merge(p Policy, nodes []int, wishes [][]Hint) (best Hint, admit bool) {
	if p == None {
		return Hint{}, true
	}
	all := MaskOf(nodes...)
	lists := make([][]Hint, 0, len(wishes))
	for _, w := range wishes {
		switch {
		case w == nil:
			w = []Hint{{Preferred: true}}
		case len(w) == 0:
			w = []Hint{{}}
		}
		if p == SingleNode {
			w = single(w)
		}
		lists = append(lists, w)
	}
	best, found := search(all, lists)
	if !found {
		best = Hint{Nodes: all}
	}
	if p == SingleNode && best.Nodes == all && all.Len() > 1 {
		best.Nodes = 0
	}
	return best, p == BestEffort || best.Preferred
}

// single keeps the hints that do not need more than one node.
func single(hints []Hint) (out []Hint) {
	for _, h := range hints {
		if h.Preferred && h.Nodes.Len() <= 1 {
			out = append(out, h)
		}
	}
	return out
}

// search tries every combination of one hint of each list.
func search(all Mask, lists [][]Hint) (best Hint, found bool) {
	widest := unpreferred(lists)
	var walk func(at int, h Hint)
	walk = func(at int, h Hint) {
		if at == len(lists) {
			if h.Nodes != 0 && (!found || better(h, best, widest)) {
				best, found = h, true
			}
			return
		}
		for _, x := range lists[at] {
			next := Hint{Nodes: h.Nodes, Preferred: h.Preferred && x.Preferred}
			if x.Nodes != 0 {
				next.Nodes &= x.Nodes
			}
			walk(at+1, next)
		}
	}
	walk(0, Hint{Nodes: all, Preferred: true})
	return best, found
}

// unpreferred is how many nodes a combination must have at least that is not preferred: the most of what each resource can do with.
func unpreferred(lists [][]Hint) (most int) {
	for _, list := range lists {
		least := -1
		for _, h := range list {
			if h.Nodes != 0 && (least < 0 || h.Nodes.Len() < least) {
				least = h.Nodes.Len()
			}
		}
		most = max(most, least)
	}
	return most
}

// better compares a hint with the best so far.
func better(h, best Hint, widest int) bool {
	if h.Preferred != best.Preferred {
		return h.Preferred
	}
	if h.Preferred {
		return h.Nodes.narrower(best.Nodes)
	}
	// Of two that are not preferred, the one is better whose size is what the neediest resource needs.
	switch n := best.Nodes.Len(); {
	case n > widest:
		return h.Nodes.narrower(best.Nodes)
	case n == widest:
		return h.Nodes.Len() == widest && h.Nodes.narrower(best.Nodes)
	default:
		return h.Nodes.Len() > n || h.Nodes.Len() == n && h.Nodes.narrower(best.Nodes)
	}
}
