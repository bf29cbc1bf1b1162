package quantity

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// CheckJSON returns an error that names the field when JSON that will be decoded into a type has a quantity out of bounds. Strings that are
// decoded into other types may look like one: a label that is part of a hash. It accepts JSON that is malformed, which the decoder
// refuses.
func CheckJSON(data []byte, into reflect.Type) error {
	if !hasSuspiciousToken(data) || !holdsQuantities(into) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_, err := checkTokens(d, into)
	return err.orNil()
}

// hasSuspiciousToken reports whether JSON has a string or a number that would be a quantity out of bounds. Hashes and UIDs look like one in
// part, and are far more frequent. A string with escapes is none: quantities are decoded without resolving them.
func hasSuspiciousToken(data []byte) bool {
	for i := 0; i < len(data); i++ {
		from := i
		for i < len(data) && isQuantityByte[data[i]] {
			i++
		}
		if i-from > maxExponent && (from == 0 || isDelimiter(data[from-1])) && (i == len(data) || isDelimiter(data[i])) &&
			IsSuspicious(data[from:i]) {
			return true
		}
	}
	return false
}

// isQuantityByte tells of each byte whether quantities are written with it.
var isQuantityByte = func() (out [256]bool) {
	for _, c := range []byte("0123456789.+-eEinumkKMGTP") {
		out[c] = true
	}
	return out
}()

// isDelimiter reports whether a byte may stand before or after a quantity in JSON. White space around one is allowed, also that of Unicode.
func isDelimiter(c byte) bool {
	return c <= ' ' || c >= utf8.RuneSelf || bytes.IndexByte([]byte(`",:[]{}`), c) >= 0
}

// CheckValue is CheckJSON for an object that was decoded without a type.
func CheckValue(value map[string]any, into reflect.Type) error {
	if _, text := FindHarmful(value); text == "" {
		return nil
	}
	return checkValue(value, into).orNil()
}

// fieldError is an error about the quantity at a path. The path is put together on the way out of nested values, so that values without
// an error cost no text.
type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string { return e.path + ": " + e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// orNil returns the error, as an interface that is nil if there is none.
func (e *fieldError) orNil() error {
	if e == nil {
		return nil
	}
	return e
}

// in returns the error with the path of the object or list that holds the value.
func (e *fieldError) in(parent string) *fieldError {
	if e != nil {
		e.path = join(parent, e.path)
	}
	return e
}

func checkValue(value any, t reflect.Type) *fieldError {
	t = pointed(t)
	switch v := value.(type) {
	case string:
		return checkText(v, t)
	case map[string]any:
		for key, of := range v {
			if err := checkValue(of, member(t, key)); err != nil {
				return err.in(key)
			}
		}
	case []any:
		for i, of := range v {
			if err := checkValue(of, element(t)); err != nil {
				return err.in("[" + strconv.Itoa(i) + "]")
			}
		}
	}
	return nil
}

// checkTokens checks the next value of JSON. A name that occurs twice is checked twice, because it is decoded twice. more is false at
// the end of the data, whole or not.
func checkTokens(d *json.Decoder, t reflect.Type) (more bool, err *fieldError) {
	token, malformed := d.Token()
	if malformed != nil {
		return false, nil // the decoder refuses it
	}
	t = pointed(t)
	switch v := token.(type) {
	case string:
		return true, checkText(v, t)
	case json.Number:
		return true, checkText(v.String(), t)
	case json.Delim:
		for i := 0; d.More(); i++ {
			of, name := element(t), ""
			if v == '{' {
				key, _ := d.Token()
				var ok bool
				if name, ok = key.(string); !ok {
					return false, nil
				}
				of = member(t, name)
			}
			if of == nil || !holdsQuantities(of) { // however deep the value is, it has no quantity
				var skipped json.RawMessage
				if d.Decode(&skipped) != nil {
					return false, nil
				}
				continue
			}
			if more, err := checkTokens(d, of); err != nil || !more {
				if v == '[' {
					name = "[" + strconv.Itoa(i) + "]"
				}
				return false, err.in(name)
			}
		}
		_, malformed = d.Token() // the closing one
	}
	return malformed == nil, nil
}

// checkText checks one string or number.
func checkText(text string, t reflect.Type) *fieldError {
	if t != reflect.TypeFor[resource.Quantity]() {
		return nil
	}
	if err := Check(text); err != nil {
		return &fieldError{err: err}
	}
	return nil
}

// pointed returns the type behind pointers; nil for nil.
func pointed(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// element returns the type of a list's elements; nil if the type is no list.
func element(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

// member returns the type of the value at a key of a JSON object; nil if there is none. Some decoders ignore the case of a name, and so
// does member.
func member(t reflect.Type, key string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			if in := member(pointed(f.Type), key); in != nil {
				return in
			}
			continue
		}
		if strings.EqualFold(name, key) {
			return f.Type
		}
	}
	return nil
}

// join returns the path of a member: "spec.containers[0].resources.limits.cpu".
func join(path, key string) string {
	if path == "" || key == "" || key[0] == '[' {
		return path + key
	}
	return path + "." + key
}
