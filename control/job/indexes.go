package job

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// span is a run of indexes, both ends included.
type span struct{ first, last int }

// indexes is a set of completion indexes: sorted spans that neither touch nor overlap. Its text is as in the status: "1,3-5,7".
type indexes []span

// parseIndexes parses the indexes of a status or a success policy, up to a number of completions. Invalid parts are skipped.
func parseIndexes(text string, completions int) indexes {
	var out indexes
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		if first >= completions {
			break
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(to); err != nil || last < first {
				continue
			}
		}
		out = append(out, span{first, min(last, completions-1)})
	}
	return merge(out)
}

// merge returns the union of sets, whose spans may be in any order.
func merge(spans ...indexes) indexes {
	all := slices.Concat(spans...)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var out indexes
	for _, s := range all {
		if n := len(out); n > 0 && s.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, s.last)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// with returns the set with more indexes.
func (x indexes) with(more []int) indexes {
	spans := make(indexes, len(more))
	for i, n := range more {
		spans[i] = span{n, n}
	}
	return merge(x, spans)
}

func (x indexes) count() int {
	n := 0
	for _, s := range x {
		n += s.last - s.first + 1
	}
	return n
}

func (x indexes) has(i int) bool {
	at, _ := slices.BinarySearchFunc(x, i, func(s span, i int) int { return cmp.Compare(s.last, i) })
	return at < len(x) && x[at].first <= i
}

// common counts the indexes that are in both sets.
func (x indexes) common(other indexes) int {
	n := 0
	for len(x) > 0 && len(other) > 0 {
		n += max(0, min(x[0].last, other[0].last)-max(x[0].first, other[0].first)+1)
		if x[0].last <= other[0].last {
			x = x[1:]
		} else {
			other = other[1:]
		}
	}
	return n
}

// missing returns up to n indexes below a limit that are not in the set, the lowest first.
func (x indexes) missing(n, limit int) []int {
	var out []int
	next := 0
	for _, s := range append(slices.Clone(x), span{limit, limit}) {
		for ; next < min(s.first, limit) && len(out) < n; next++ {
			out = append(out, next)
		}
		next = max(next, s.last+1)
	}
	return out
}

func (x indexes) String() string {
	var b strings.Builder
	for i, s := range x {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s.first))
		switch s.last - s.first {
		case 0:
			continue
		case 1:
			b.WriteByte(',')
		default:
			b.WriteByte('-')
		}
		b.WriteString(strconv.Itoa(s.last))
	}
	return b.String()
}
