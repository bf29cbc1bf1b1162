package topology

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Set is a set of CPUs.
type Set map[int]struct{}

// SetOf makes a set.
func SetOf(ids ...int) Set {
	s := Set{}
	for _, id := range ids {
		s[id] = struct{}{}
	}
	return s
}

// maxProcessor is the largest CPU number in a list.
const maxProcessor = 1 << 16

// ParseSet parses a list in the notation of the kernel: 0-3,8.
func ParseSet(text string) (Set, error) {
	s := Set{}
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || a < 0 || b < a || b > maxProcessor {
			return nil, fmt.Errorf("%q is no list of processors, such as 0-3,8", text)
		}
		for id := a; id <= b; id++ {
			s[id] = struct{}{}
		}
	}
	return s, nil
}

// IDs returns the members, in order.
func (s Set) IDs() []int { return slices.Sorted(maps.Keys(s)) }

// Has reports whether a CPU is in the set.
func (s Set) Has(id int) bool { _, has := s[id]; return has }

// Holds reports whether all members of another set are in this one.
func (s Set) Holds(o Set) bool {
	for id := range o {
		if !s.Has(id) {
			return false
		}
	}
	return true
}

// With returns the union of two sets.
func (s Set) With(o Set) Set {
	out := maps.Clone(s)
	if out == nil {
		out = Set{}
	}
	maps.Copy(out, o)
	return out
}

// Without returns the set without the members of another.
func (s Set) Without(o Set) Set {
	out := Set{}
	for id := range s {
		if !o.Has(id) {
			out[id] = struct{}{}
		}
	}
	return out
}

// String returns the list in the notation of the kernel.
func (s Set) String() string {
	ids := s.IDs()
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(ids[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Mask is a set of NUMA nodes, of which there are at most 64.
type Mask uint64

// MaskOf makes a mask.
func MaskOf(ids ...int) (m Mask) {
	for _, id := range ids {
		if id >= 0 && id < 64 {
			m |= 1 << id
		}
	}
	return m
}

// Has reports whether a node is in the mask.
func (m Mask) Has(id int) bool { return id >= 0 && id < 64 && m&(1<<id) != 0 }

// Len returns the number of nodes.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// IDs returns the nodes, in order.
func (m Mask) IDs() (out []int) {
	for id := range 64 {
		if m.Has(id) {
			out = append(out, id)
		}
	}
	return out
}

func (m Mask) String() string { return SetOf(m.IDs()...).String() }

// isNarrower reports whether a mask has fewer nodes, or as many but lower ones.
func (m Mask) isNarrower(o Mask) bool {
	if m.Len() != o.Len() {
		return m.Len() < o.Len()
	}
	return m < o
}

// Masks returns all non-empty subsets of nodes, small ones first.
func Masks(nodes []int) (out []Mask) {
	for n := uint64(1); n < 1<<len(nodes); n++ {
		var m Mask
		for i, id := range nodes {
			if n&(1<<i) != 0 {
				m |= MaskOf(id)
			}
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Mask) int {
		if a.isNarrower(b) {
			return -1
		}
		return 1
	})
	return out
}
