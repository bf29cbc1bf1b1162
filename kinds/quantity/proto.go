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

// maxDepth is how deep messages are looked into. The deepest of the types that have quantities are not half as deep.
const maxDepth = 64

// maxNumber is the largest number that a field can have.
const maxNumber = 1<<29 - 1

// ErrMessage refuses a message that no encoder writes. The decoders do not agree about such ones: groups are skipped, numbers lose their
// upper bits, entries of maps reach beyond their end, so that what is looked at here need not be what is decoded afterwards.
var ErrMessage = errors.New("a message with quantities out of bounds, or texts like them, must be one that can be read in one way only")

// Messages knows where in messages of protobuf there are quantities. It learns it of a type when it first sees one, and is safe for concurrent
// use. The zero value is ready.
type Messages struct{ types sync.Map } // by reflect.Type: map[uint64]way

// way is a field that leads to quantities.
type way struct {
	name string // in JSON
	to   reflect.Type
}

// InProto is InJSON for a message of protobuf, without the envelope that names its kind. Who calls it has seen that the message is Suspicious.
func (x *Messages) InProto(message []byte, into reflect.Type) error {
	into = pointed(into)
	if into == nil || len(x.ways(into)) == 0 {
		return nil
	}
	return x.in(message, into, "", maxDepth)
}

func (x *Messages) in(message []byte, t reflect.Type, path string, depth int) error {
	if depth == 0 {
		return nil
	}
	ways := x.ways(t)
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag>>3 == 0 || tag>>3 > maxNumber {
			return ErrMessage
		}
		var body []byte
		if body, message = fieldBody(tag&7, message[n:]); message == nil {
			return ErrMessage
		}
		if tag&7 != 2 {
			if t.Kind() == reflect.Map && tag>>3 <= 2 { // decoders read keys and values as texts and messages, whatever is said here
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
		w, ok := ways[tag>>3]
		if !ok {
			continue
		}
		if err := x.in(body, w.to, join(path, w.name), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// fieldBody returns the bytes of a field and what follows it; nil if the message is broken, or the field is a group.
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

// ways are the fields of a message that lead to quantities, by their numbers.
func (x *Messages) ways(t reflect.Type) map[uint64]way {
	if known, ok := x.types.Load(t); ok {
		return known.(map[uint64]way)
	}
	out := map[uint64]way{}
	add := func(number uint64, name string, of reflect.Type) {
		if of = pointed(of); of.Kind() == reflect.Slice {
			of = pointed(of.Elem())
		}
		if leads(of, map[reflect.Type]bool{}) {
			out[number] = way{name, of}
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

// leads says that there may be a quantity somewhere in a type. seen are the types that have been looked at.
func leads(t reflect.Type, seen map[reflect.Type]bool) bool {
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
		return leads(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if leads(f.Type, seen) {
				return true
			}
		}
	default:
	}
	return false
}
