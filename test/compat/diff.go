package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// difference is one place where two answers are not the same.
type difference struct {
	Field    string `json:"field"`
	Upstream string `json:"upstream"`
	Proa     string `json:"proa"`
}

// absent stands for a value that is not there.
const absent = "<absent>"

// compare lists where two masked values differ, in a fixed order.
func compare(field string, a, b any) []difference {
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
	return []difference{{field, show(a), show(b)}}
}

func compareMaps(field string, a, b map[string]any) []difference {
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
	var out []difference
	for _, k := range keys {
		x, inA := a[k]
		y, inB := b[k]
		path := field + "." + k
		switch {
		case !inA:
			out = append(out, difference{path, absent, show(y)})
		case !inB:
			out = append(out, difference{path, show(x), absent})
		default:
			out = append(out, compare(path, x, y)...)
		}
	}
	return out
}

func compareLists(field string, a, b []any) []difference {
	if x, keysA := byName(a); x != nil || len(a) == 0 {
		if y, keysB := byName(b); y != nil || len(b) == 0 {
			out := compareMaps(field, x, y)
			if len(out) == 0 && !slices.Equal(keysA, keysB) {
				out = append(out, difference{field + " (order)", shorten(strings.Join(keysA, ", ")), shorten(strings.Join(keysB, ", "))})
			}
			return out
		}
	}
	var out []difference
	for i := range max(len(a), len(b)) {
		path := field + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(a):
			out = append(out, difference{path, absent, show(b[i])})
		case i >= len(b):
			out = append(out, difference{path, show(a[i]), absent})
		default:
			out = append(out, compare(path, a[i], b[i])...)
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
		key := nameOf(v)
		if _, taken := out[key]; key == "" || taken {
			return nil, nil
		}
		out[key] = v
		keys = append(keys, key)
	}
	return out, keys
}

func nameOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	m, _ := v.(map[string]any)
	if meta, ok := m["metadata"].(map[string]any); ok && text(meta, "name") != "" {
		return text(meta, "namespace") + "/" + text(meta, "name")
	}
	for _, key := range []string{"name", "resource", "subresource", "groupVersion", "version", "type"} {
		if s := text(m, key); s != "" {
			return s
		}
	}
	return ""
}

// compareStatuses compares two refusals by their causes, so that a report
// names the cause that is missing instead of two long messages.
func compareStatuses(a, b map[string]any) []difference {
	causesA, causesB := causes(a), causes(b)
	var out []difference
	for field, x := range causesA {
		y := causesB[field]
		onlyA, onlyB := without(x, y), without(y, x)
		if len(onlyA)+len(onlyB) > 0 {
			out = append(out, difference{"cause " + field, shorten(or(strings.Join(onlyA, "; "), absent)), shorten(or(strings.Join(onlyB, "; "), absent))})
		}
	}
	for field, y := range causesB {
		if _, ok := causesA[field]; !ok {
			out = append(out, difference{"cause " + field, absent, shorten(strings.Join(y, "; "))})
		}
	}
	slices.SortFunc(out, func(x, y difference) int { return strings.Compare(x.Field, y.Field) })
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
	for _, c := range list(details, "causes") {
		field := text(c, "field")
		out[field] = append(out[field], text(c, "reason")+": "+text(c, "message"))
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

// show renders a value, shortened so that reports stay readable.
func show(v any) string {
	if v == nil {
		return absent
	}
	if s, ok := v.(string); ok {
		return shorten(strconv.Quote(s))
	}
	data, err := json.Marshal(v)
	if err != nil {
		return shorten(fmt.Sprint(v))
	}
	return shorten(string(data))
}

func shorten(s string) string {
	const limit = 600
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
