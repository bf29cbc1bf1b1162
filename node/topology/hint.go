package topology

import (
	"fmt"
)

// Hint is a set of NUMA nodes from which a resource could be allocated. Nodes of 0 stand for any.
type Hint struct {
	Nodes Mask
	// Preferred reports that the set is no larger than necessary.
	Preferred bool
}

// Policy is the policy of the topology manager: it decides about Pods whose resources are not all on the same NUMA
// nodes.
type Policy string

// The policies.
const (
	None       Policy = "none"
	BestEffort Policy = "best-effort"
	Restricted Policy = "restricted"
	SingleNode Policy = "single-numa-node"
)

// ParsePolicy parses a policy; empty means none.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(text); p {
	case "":
		return None, nil
	case None, BestEffort, Restricted, SingleNode:
		return p, nil
	}
	return "", fmt.Errorf("unknown policy: %q; it may be none, best-effort, restricted or single-numa-node", text)
}

// maxNodes is the largest number of NUMA nodes: the work grows exponentially with it.
const maxNodes = 8

// merge finds the best common hint. Every element of wishes has the hints of one resource: nil if any node will do,
// empty if it cannot be allocated at all. admit reports whether the policy admits the Pod.
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

// single returns the hints that need only one node.
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
	widest := minUnpreferred(lists)
	var walk func(at int, h Hint)
	walk = func(at int, h Hint) {
		if at == len(lists) {
			if h.Nodes != 0 && (!found || isBetter(h, best, widest)) {
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

// minUnpreferred returns the least number of nodes of a combination that is not preferred: the largest of the minimums of
// all resources.
func minUnpreferred(lists [][]Hint) (most int) {
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

// isBetter compares a hint with the best so far.
func isBetter(h, best Hint, widest int) bool {
	if h.Preferred != best.Preferred {
		return h.Preferred
	}
	if h.Preferred {
		return h.Nodes.isNarrower(best.Nodes)
	}
	// Of two hints that are not preferred, the one is better whose size is what the most demanding resource needs.
	switch n := best.Nodes.Len(); {
	case n > widest:
		return h.Nodes.isNarrower(best.Nodes)
	case n == widest:
		return h.Nodes.Len() == widest && h.Nodes.isNarrower(best.Nodes)
	default:
		return h.Nodes.Len() > n || h.Nodes.Len() == n && h.Nodes.isNarrower(best.Nodes)
	}
}
