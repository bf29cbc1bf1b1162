package quantity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxDepth is how deep messages are looked into. The deepest of the types that have quantities are not half as deep.
const maxDepth = 64

// maxNumber is the largest number that a field can have.
const maxNumber = 1<<29 - 1

// ErrMessage refuses a message that no encoder writes. The decoders do not agree about such ones: groups are skipped, numbers lose their
// upper bits, entries of maps reach beyond their end, so that what is looked at here need not be what is decoded afterwards.
var ErrMessage = errors.New("a message with quantities out of bounds, or texts like them, must be one that can be read in one way only")

// InProto is InJSON for a message of protobuf, without the envelope that names its kind. Who calls it has seen that the message is Suspicious.
func InProto(message []byte, into reflect.Type) error {
	return inMessage(message, pointed(into), "", maxDepth)
}

func inMessage(message []byte, t reflect.Type, path string, depth int) error {
	if t == nil || t.Kind() != reflect.Struct && t.Kind() != reflect.Map || depth == 0 {
		return nil
	}
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
		of, name := field(t, tag>>3)
		if err := inMessage(body, of, join(path, name), depth-1); err != nil {
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

// field is the type of a message's field by its number, or nil, and the field's name in JSON.
func field(t reflect.Type, number uint64) (reflect.Type, string) {
	if t.Kind() == reflect.Map { // an entry is a message: its key is field 1
		if number == 2 {
			return pointed(t.Elem()), ""
		}
		return nil, ""
	}
	if t.Kind() != reflect.Struct {
		return nil, ""
	}
	wanted := strconv.FormatUint(number, 10)
	for f := range t.Fields() {
		parts := strings.SplitN(f.Tag.Get("protobuf"), ",", 3)
		if len(parts) < 2 || parts[1] != wanted {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := pointed(f.Type)
		if of.Kind() == reflect.Slice {
			of = pointed(of.Elem())
		}
		return of, name
	}
	return nil, ""
}
