// Package answerdiff compares the answers of two API servers: it masks what must differ, such as UIDs, and lists the
// differences that remain.
package answerdiff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Difference is one place where two answers are not the same.
type Difference struct {
	Field    string `json:"field"`
	Upstream string `json:"upstream"`
	Proa     string `json:"proa"`
}

// absent stands for a value that is not there.
const absent = "<absent>"

// Compare lists where two masked values differ, in a fixed order.
func Compare(field string, a, b any) []Difference {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			return compareMaps(field, x, y)
		}
	case []any:
		if y, ok := b.([]any); ok {
			return compareLists(field, x, y)
		}
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []Difference{{field, Show(a), Show(b)}}
}

func compareMaps(field string, a, b map[string]any) []Difference {
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []Difference
	for _, k := range keys {
		x, inA := a[k]
		y, inB := b[k]
		path := field + "." + k
		switch {
		case !inA:
			out = append(out, Difference{path, absent, Show(y)})
		case !inB:
			out = append(out, Difference{path, Show(x), absent})
		default:
			out = append(out, Compare(path, x, y)...)
		}
	}
	return out
}

func compareLists(field string, a, b []any) []Difference {
	if x, keysA := byName(a); x != nil || len(a) == 0 {
		if y, keysB := byName(b); y != nil || len(b) == 0 {
			out := compareMaps(field, x, y)
			if len(out) == 0 && !slices.Equal(keysA, keysB) {
				out = append(out, Difference{field + " (order)", Shorten(strings.Join(keysA, ", ")), Shorten(strings.Join(keysB, ", "))})
			}
			return out
		}
	}
	var out []Difference
	for i := range max(len(a), len(b)) {
		path := field + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(a):
			out = append(out, Difference{path, absent, Show(b[i])})
		case i >= len(b):
			out = append(out, Difference{path, Show(a[i]), absent})
		default:
			out = append(out, Compare(path, a[i], b[i])...)
		}
	}
	return out
}

// byName turns a list whose items all have a name of their own into a map, so
// that one item more does not make all that follow differ.
func byName(list []any) (map[string]any, []string) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]any, len(list))
	var keys []string
	for _, v := range list {
		key := NameOf(v)
		if _, taken := out[key]; key == "" || taken {
			return nil, nil
		}
		out[key] = v
		keys = append(keys, key)
	}
	return out, keys
}

// NameOf returns the name of an object or list item; empty if it has none.
func NameOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	m, _ := v.(map[string]any)
	if meta, ok := m["metadata"].(map[string]any); ok && Text(meta, "name") != "" {
		return Text(meta, "namespace") + "/" + Text(meta, "name")
	}
	for _, key := range []string{"name", "resource", "subresource", "groupVersion", "version", "type"} {
		if s := Text(m, key); s != "" {
			return s
		}
	}
	return ""
}

// CompareStatuses compares two refusals by their causes, so that a report
// names the cause that is missing instead of two long messages.
func CompareStatuses(a, b map[string]any) []Difference {
	causesA, causesB := causes(a), causes(b)
	var out []Difference
	for field, x := range causesA {
		y := causesB[field]
		onlyA, onlyB := without(x, y), without(y, x)
		if len(onlyA)+len(onlyB) > 0 {
			out = append(out, Difference{"cause " + field, Shorten(cmp.Or(strings.Join(onlyA, "; "), absent)),
				Shorten(cmp.Or(strings.Join(onlyB, "; "), absent))})
		}
	}
	for field, y := range causesB {
		if _, ok := causesA[field]; !ok {
			out = append(out, Difference{"cause " + field, absent, Shorten(strings.Join(y, "; "))})
		}
	}
	slices.SortFunc(out, func(x, y Difference) int { return strings.Compare(x.Field, y.Field) })
	for _, d := range compareMaps("body", a, b) {
		isCause := strings.HasPrefix(d.Field, "body.details.causes")
		if len(out) > 0 && (isCause || d.Field == "body.message") {
			continue
		}
		out = append(out, d)
	}
	return out
}

func causes(status map[string]any) map[string][]string {
	details, _ := status["details"].(map[string]any)
	out := map[string][]string{}
	for _, c := range List(details, "causes") {
		field := Text(c, "field")
		out[field] = append(out[field], Text(c, "reason")+": "+Text(c, "message"))
	}
	return out
}

// without lists the words of a that b lacks, counted.
func without(a, b []string) []string {
	rest := slices.Clone(b)
	var out []string
	for _, s := range a {
		if i := slices.Index(rest, s); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Show renders a value, shortened so that reports stay readable.
func Show(v any) string {
	if v == nil {
		return absent
	}
	if s, ok := v.(string); ok {
		return Shorten(strconv.Quote(s))
	}
	data, err := json.Marshal(v)
	if err != nil {
		return Shorten(fmt.Sprint(v))
	}
	return Shorten(string(data))
}

// Shorten cuts a long text.
func Shorten(s string) string {
	const limit = 600
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
