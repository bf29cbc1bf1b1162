package servicetable

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// elements is one set or map in the kernel, with the changes of the next transaction. Several Services may claim the
// same element: two ports share a cluster IP, and two Services may have the same external IP. The oldest Service gets
// it, and after it the next.
type elements struct {
	set     *nftables.Set
	claims  map[string][]claim
	touched map[string]string // the values in the kernel before the changes; "" for none
}

type claim struct {
	owner string
	value string // "" in sets; a verdict, or bytes
}

func newElements(set *nftables.Set) *elements {
	return &elements{set: set, claims: map[string][]claim{}, touched: map[string]string{}}
}

// present stands for the value of an element of a set, which has none.
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

// claim adds the claim of an owner to an element.
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

// drop removes the claim of an owner.
func (e *elements) drop(owner, k string) {
	e.touch(k)
	list := slices.DeleteFunc(e.claims[k], func(c claim) bool { return c.owner == owner })
	if len(list) == 0 {
		delete(e.claims, k)
		return
	}
	e.claims[k] = list
}

// changes returns the elements to delete and to add. An element whose value changes is in both.
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
	} else if value == string(ToDrop) {
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
	}
	return out
}
