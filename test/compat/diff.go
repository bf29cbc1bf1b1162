package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
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
