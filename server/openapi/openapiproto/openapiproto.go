// Package openapiproto encodes OpenAPI documents as protobuf.
//
// The protobuf form of a document is a direct image of its JSON, with a table of field numbers for each object. Encoding
// the JSON needs neither the generated Go types, which are large, nor a second copy of the document in memory.
package openapiproto

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// object is a JSON object.
type object = map[string]any

// Encoder appends the content of a message to b.
type Encoder func(b []byte, v any) []byte

// field appends a whole field with its number.
type field func(b []byte, v any) []byte

// message encodes an object: its known keys as fields, and keys that begin with "x-" as extensions.
type message struct {
	fields     map[string]field
	extensions protowire.Number
}

func (m *message) body(b []byte, v any) []byte {
	o, _ := v.(object)
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if f := m.fields[key]; f != nil {
			b = f(b, o[key])
		} else if m.extensions > 0 && strings.HasPrefix(key, "x-") {
			b = appendMessage(b, m.extensions, appendNamed(nil, key, anyBody(nil, o[key])))
		}
	}
	return b
}

func appendMessage(b []byte, num protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), content)
}

func appendNamed(b []byte, name string, value []byte) []byte {
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
	return appendMessage(b, 2, value)
}

// anyBody encodes a value of any type as text. The text is JSON, which is also YAML.
func anyBody(b []byte, v any) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return b // cannot happen: v was decoded from JSON
	}
	return appendMessage(b, 2, text.Bytes())
}

func text(num protowire.Number) field {
	return func(b []byte, v any) []byte {
		s, ok := v.(string)
		if !ok {
			return b
		}
		return appendMessage(b, num, []byte(s))
	}
}

func texts(num protowire.Number) field {
	return func(b []byte, v any) []byte {
		list, ok := v.([]any)
		if !ok {
			list = []any{v} // A type may be one name or several.
		}
		for _, e := range list {
			b = text(num)(b, e)
		}
		return b
	}
}

func flag(num protowire.Number) field {
	return func(b []byte, v any) []byte {
		if on, _ := v.(bool); !on {
			return b
		}
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), 1)
	}
}

func integer(num protowire.Number) field {
	return func(b []byte, v any) []byte {
		f, _ := v.(float64)
		if f == 0 {
			return b
		}
		return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(int64(f)))
	}
}

func number(num protowire.Number) field {
	return func(b []byte, v any) []byte {
		f, _ := v.(float64)
		if f == 0 {
			return b
		}
		return protowire.AppendFixed64(protowire.AppendTag(b, num, protowire.Fixed64Type), math.Float64bits(f))
	}
}

func one(num protowire.Number, content Encoder) field {
	return func(b []byte, v any) []byte { return appendMessage(b, num, content(nil, v)) }
}

func many(num protowire.Number, content Encoder) field {
	return func(b []byte, v any) []byte {
		list, _ := v.([]any)
		for _, e := range list {
			b = appendMessage(b, num, content(nil, e))
		}
		return b
	}
}

// wrap encodes a message with the value in one of its fields.
func wrap(f field) Encoder { return func(b []byte, v any) []byte { return f(b, v) } }

// table encodes a message that lists the entries of an object by name, in its field num.
func table(num protowire.Number, content Encoder) Encoder {
	return func(b []byte, v any) []byte {
		o, _ := v.(object)
		for _, name := range slices.Sorted(maps.Keys(o)) {
			b = appendMessage(b, num, appendNamed(nil, name, content(nil, o[name])))
		}
		return b
	}
}

// choose picks one of two forms by whether the value is a reference.
func choose(plain, reference field) Encoder {
	return func(b []byte, v any) []byte {
		if o, _ := v.(object); o["$ref"] != nil {
			return reference(b, v)
		}
		return plain(b, v)
	}
}

// schemaOrBool encodes additionalProperties: a schema, or whether any property is allowed.
func schemaOrBool(schema Encoder) Encoder {
	return func(b []byte, v any) []byte {
		if on, ok := v.(bool); ok {
			b = protowire.AppendTag(b, 2, protowire.VarintType)
			return protowire.AppendVarint(b, protowire.EncodeBool(on))
		}
		return appendMessage(b, 1, schema(nil, v))
	}
}

// Encode encodes a JSON document.
func Encode(raw []byte, document Encoder) ([]byte, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("openapi: decode a document: %w", err)
	}
	return document(nil, v), nil
}
