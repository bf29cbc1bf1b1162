package answerdiff

import (
	"fmt"
	"slices"
	"strings"
)

// Paths lists every place in a tree down to a depth: keys as strings and, of
// lists, the first item as 0. Parents come before their children.
func Paths(tree any, depth int) [][]any {
	var out [][]any
	var walk func(v any, p []any)
	walk = func(v any, p []any) {
		if len(p) > 0 {
			out = append(out, slices.Clone(p))
		}
		if len(p) >= depth {
			return
		}
		switch x := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(x))
			for k := range x {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				walk(x[k], append(p, k))
			}
		case []any:
			if len(x) > 0 {
				walk(x[0], append(p, 0))
			}
		}
	}
	walk(tree, nil)
	return out
}

// At is the value at a path.
func At(tree any, p []any) any {
	for _, e := range p {
		switch x := tree.(type) {
		case map[string]any:
			key, _ := e.(string)
			tree = x[key]
		case []any:
			i, _ := e.(int)
			if i >= len(x) {
				return nil
			}
			tree = x[i]
		default:
			return nil
		}
	}
	return tree
}

// Graft puts the value at a path of one tree to the same path of another,
// making what lies between; value, if not nil, is put there instead.
func Graft(into map[string]any, from any, p []any, value any) {
	if value == nil {
		value = CopyTree(At(from, p))
	}
	graftInto(into, p, value)
}

func graftInto(into any, p []any, value any) any {
	if len(p) == 0 {
		return value
	}
	switch e := p[0].(type) {
	case string:
		m, ok := into.(map[string]any)
		if !ok {
			m = map[string]any{}
		}
		m[e] = graftInto(m[e], p[1:], value)
		return m
	default:
		l, ok := into.([]any)
		if !ok || len(l) == 0 {
			l = []any{nil}
		}
		l[0] = graftInto(l[0], p[1:], value)
		return l
	}
}

// PathText returns a path with dots.
func PathText(p []any) string {
	var b strings.Builder
	for i, e := range p {
		if _, ok := e.(int); ok {
			b.WriteString("[0]")
			continue
		}
		if i > 0 {
			b.WriteString(".")
		}
		fmt.Fprint(&b, e)
	}
	return b.String()
}
