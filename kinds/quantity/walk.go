package quantity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// InJSON returns an error that names the field when JSON that will be decoded into a type has a quantity out of bounds. Other
// strings may look like one: a label that is part of a hash. JSON that cannot be read is for the decoder to refuse.
func InJSON(data []byte, into reflect.Type) error {
	if !mayHold(data) || !leads(into, map[reflect.Type]bool{}) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_, err := inTokens(d, into, "")
	return err
}

// mayHold says that JSON has a string or a number that would be a quantity out of bounds. Hashes and UIDs look like one in part, and are far
// more frequent. A string with escapes is none: they are not resolved in quantities.
func mayHold(data []byte) bool {
	for i := 0; i < len(data); i++ {
		from := i
		for i < len(data) && isPart[data[i]] {
			i++
		}
		if i-from > maxExponent && (from == 0 || mayEnd(data[from-1])) && (i == len(data) || mayEnd(data[i])) && Suspicious(data[from:i]) {
			return true
		}
	}
	return false
}

// isPart are the bytes of quantities.
var isPart = func() (out [256]bool) {
	for _, c := range []byte("0123456789.+-eEinumkKMGTP") {
		out[c] = true
	}
	return out
}()

// mayEnd says that a byte may be before or after a quantity in JSON. Space around one is allowed, also that which is not ASCII.
func mayEnd(c byte) bool {
	return c <= ' ' || c >= utf8.RuneSelf || bytes.IndexByte([]byte(`",:[]{}`), c) >= 0
}

// InValue is InJSON for an object that was decoded without a type.
func InValue(value map[string]any, into reflect.Type) error {
	if _, text := HarmfulIn(value); text == "" {
		return nil
	}
	return inValue(value, into, "")
}

func inValue(value any, t reflect.Type, path string) error {
	t = pointed(t)
	switch v := value.(type) {
	case string:
		return inText(v, t, path)
	case map[string]any:
		for key, of := range v {
			if err := inValue(of, member(t, key), join(path, key)); err != nil {
				return err
			}
		}
	case []any:
		for i, of := range v {
			if err := inValue(of, element(t), path+"["+strconv.Itoa(i)+"]"); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTokens looks at the next value of JSON. A name that comes twice is looked at twice, because it is decoded twice. More is false at
// the end of the data, whole or not.
func inTokens(d *json.Decoder, t reflect.Type, path string) (more bool, err error) {
	token, broken := d.Token()
	if broken != nil {
		return false, nil //nolint:nilerr // the decoder refuses it in its own words
	}
	t = pointed(t)
	switch v := token.(type) {
	case string:
		return true, inText(v, t, path)
	case json.Number:
		return true, inText(v.String(), t, path)
	case json.Delim:
		for i := 0; d.More(); i++ {
			of, at := element(t), path+"["+strconv.Itoa(i)+"]"
			if v == '{' {
				key, _ := d.Token()
				name, ok := key.(string)
				if !ok {
					return false, nil
				}
				of, at = member(t, name), join(path, name)
			}
			if of == nil || !leads(of, map[reflect.Type]bool{}) { // however deep it is, there is nothing in it
				var skipped json.RawMessage
				if d.Decode(&skipped) != nil {
					return false, nil
				}
				continue
			}
			if more, err := inTokens(d, of, at); err != nil || !more {
				return false, err
			}
		}
		_, broken = d.Token() // the closing one
	}
	return broken == nil, nil
}

// inText checks one string or number.
func inText(text string, t reflect.Type, path string) error {
	if t != reflect.TypeFor[resource.Quantity]() {
		return nil
	}
	if err := Check(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// pointed is the type behind pointers, or nil.
func pointed(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// element is the type of a list's elements, or nil.
func element(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

// member is the type of what a key of a JSON object leads to, or nil. Some decoders ignore the case of a name, so it is ignored here.
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

// join is the path of a member: "spec.containers[0].resources.limits.cpu".
func join(path, key string) string {
	if path == "" || key == "" || key[0] == '[' {
		return path + key
	}
	return path + "." + key
}
