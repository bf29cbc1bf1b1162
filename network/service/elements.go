package service

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// elements is one set or map of the kernel, as it is and as it shall be after the next transaction. Several Services may want
// the same element: two ports share a cluster IP, and nobody keeps two Services from having the same external IP. The oldest
// gets it, and when it goes, the next.
type elements struct {
	set     *nftables.Set
	claims  map[string][]claim
	touched map[string]string // what was in the kernel before; "" if nothing was
}

type claim struct {
	owner string
	value string // "" in sets; a verdict, or bytes
}

func newElements(set *nftables.Set) *elements {
	return &elements{set: set, claims: map[string][]claim{}, touched: map[string]string{}}
}

// present is the value of sets, whose elements have none.
const present = "present"

func (e *elements) winner(k string) string {
	if list := e.claims[k]; len(list) > 0 {
		return list[0].value
	}
	return ""
}

func (e *elements) touch(k string) {
	if _, ok := e.touched[k]; !ok {
		e.touched[k] = e.winner(k)
	}
}

// claim makes an owner want an element.
func (e *elements) claim(owner, k, value string) {
	e.touch(k)
	list := e.claims[k]
	i, found := slices.BinarySearchFunc(list, owner, func(c claim, o string) int { return strings.Compare(c.owner, o) })
	if found {
		list[i].value = value
	} else {
		list = slices.Insert(list, i, claim{owner, value})
	}
	e.claims[k] = list
}

// drop makes an owner want it no longer.
func (e *elements) drop(owner, k string) {
	e.touch(k)
	list := slices.DeleteFunc(e.claims[k], func(c claim) bool { return c.owner == owner })
	if len(list) == 0 {
		delete(e.claims, k)
		return
	}
	e.claims[k] = list
}

// changes returns what must be deleted and what added; an element with another value is both.
func (e *elements) changes() (del, add []nftables.SetElement) {
	for _, k := range slices.Sorted(maps.Keys(e.touched)) {
		was, is := e.touched[k], e.winner(k)
		if was == is {
			continue
		}
		if was != "" {
			del = append(del, nftables.SetElement{Key: []byte(k)})
		}
		if is != "" {
			add = append(add, element(k, is))
		}
	}
	e.touched = map[string]string{}
	return del, add
}

const gotoPrefix = "goto "

func element(k, value string) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(k)}
	if chain, ok := strings.CutPrefix(value, gotoPrefix); ok {
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}
	} else if value == string(toNobody) {
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
	}
	return out
}

// chunk is how many elements go into one message, whose lists hold 64 KiB.
const chunk = 256

func inChunks(s *nftables.Set, list []nftables.SetElement, do func(*nftables.Set, []nftables.SetElement) error) error {
	for part := range slices.Chunk(list, chunk) {
		if err := do(s, part); err != nil {
			return err
		}
	}
	return nil
}
