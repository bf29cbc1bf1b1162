package answerdiff

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// CopyTree copies a tree of maps and lists.
func CopyTree(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := maps.Clone(x)
		for k, item := range out {
			out[k] = CopyTree(item)
		}
		return out
	case []any:
		out := slices.Clone(x)
		for i, item := range out {
			out[i] = CopyTree(item)
		}
		return out
	}
	return v
}

// Clone copies a tree of plain values.
func Clone[T any](v T) T { return CopyTree(v).(T) }

// Encode renders a tree as JSON; trees come from JSON, so it cannot fail.
func Encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return data
}

// Anys converts a list of texts for a tree.
func Anys(list []string) any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// List returns the list at a key of a map; nil if there is none.
func List(v any, key string) []any {
	m, _ := v.(map[string]any)
	l, _ := m[key].([]any)
	return l
}

// Text returns the text at a key of a map; empty if there is none.
func Text(v any, key string) string {
	m, _ := v.(map[string]any)
	s, _ := m[key].(string)
	return s
}

// ParseJSON parses JSON, with numbers as they are written.
func ParseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}
