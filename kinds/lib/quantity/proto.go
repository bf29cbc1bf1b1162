package quantity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxDepth bounds how deep messages are read. The deepest of the types that have quantities are not half as deep.
const maxDepth = 64

// maxFieldNumber is the largest number of a field that protobuf allows.
const maxFieldNumber = 1<<29 - 1

// ErrMessage refuses a message that no encoder writes. Decoders do not agree about such messages: groups are skipped, numbers lose their
// upper bits, entries of maps reach beyond their end, so that what is checked here need not be what is decoded afterwards.
var ErrMessage = errors.New("a message with quantities out of bounds, or texts like them, must be one that can be read in one way only")

// Messages checks messages of protobuf. It remembers which fields of a type hold quantities, and is safe for concurrent use. The zero value
// is ready.
type Messages struct{ types sync.Map } // by reflect.Type: map[uint64]quantityField

// quantityField is a field that is a quantity or holds one.
type quantityField struct {
	name string // in JSON
	to   reflect.Type
}

// CheckProto is CheckJSON for a message of protobuf, without the envelope that names its kind. Callers check first that
// the message is Suspicious.
func (x *Messages) CheckProto(message []byte, into reflect.Type) error {
	into = pointed(into)
	if into == nil || len(x.quantityFields(into)) == 0 {
		return nil
	}
	return x.check(message, into, "", maxDepth)
}

func (x *Messages) check(message []byte, t reflect.Type, path string, depth int) error {
	if depth == 0 {
		return nil
	}
	fields := x.quantityFields(t)
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag>>3 == 0 || tag>>3 > maxFieldNumber {
			return ErrMessage
		}
		var body []byte
		if body, message = fieldBody(tag&7, message[n:]); message == nil {
			return ErrMessage
		}
		if tag&7 != 2 {
			if t.Kind() == reflect.Map && tag>>3 <= 2 { // decoders read keys and values as texts and messages, whatever the wire type is
				return ErrMessage
			}
			continue
		}
		if t == reflect.TypeFor[resource.Quantity]() {
			if err := Check(string(body)); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		f, ok := fields[tag>>3]
		if !ok {
			continue
		}
		if err := x.check(body, f.to, join(path, f.name), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// fieldBody returns the bytes of a field and of what follows it; nil if the message is malformed, or the field is a group.
func fieldBody(wire uint64, from []byte) (body, rest []byte) {
	size, n := uint64(0), 0
	switch wire {
	case 0:
		_, n = binary.Uvarint(from)
	case 1:
		n = 8
	case 2:
		size, n = binary.Uvarint(from)
	case 5:
		n = 4
	}
	if n <= 0 || n > len(from) || size > uint64(len(from)-n) {
		return nil, nil
	}
	return from[n : uint64(n)+size], from[uint64(n)+size:]
}

// quantityFields returns the fields of a message that hold quantities, by their numbers.
func (x *Messages) quantityFields(t reflect.Type) map[uint64]quantityField {
	if known, ok := x.types.Load(t); ok {
		return known.(map[uint64]quantityField)
	}
	out := map[uint64]quantityField{}
	add := func(number uint64, name string, of reflect.Type) {
		if of = pointed(of); of.Kind() == reflect.Slice {
			of = pointed(of.Elem())
		}
		if holdsQuantities(of) {
			out[number] = quantityField{name, of}
		}
	}
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
	case t.Kind() == reflect.Map: // an entry is a message: its key is field 1
		add(2, "", t.Elem())
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			parts := strings.SplitN(f.Tag.Get("protobuf"), ",", 3)
			if len(parts) < 2 {
				continue
			}
			if number, err := strconv.ParseUint(parts[1], 10, 64); err == nil {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				add(number, name, f.Type)
			}
		}
	}
	x.types.Store(t, out)
	return out
}

// knownTypes remembers which types hold quantities: the answer for a Pod takes a walk over hundreds of types.
var knownTypes sync.Map // by reflect.Type: bool

// holdsQuantities reports whether a value of a type may have a quantity somewhere in it.
func holdsQuantities(t reflect.Type) bool {
	if known, ok := knownTypes.Load(t); ok {
		return known.(bool)
	}
	holds := findQuantity(t, map[reflect.Type]bool{})
	knownTypes.Store(t, holds)
	return holds
}

// findQuantity is holdsQuantities without its memory. It does not look into the types that it has seen already.
func findQuantity(t reflect.Type, seen map[reflect.Type]bool) bool {
	t = pointed(t)
	if t == reflect.TypeFor[resource.Quantity]() {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		return findQuantity(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if findQuantity(f.Type, seen) {
				return true
			}
		}
	default:
	}
	return false
}
