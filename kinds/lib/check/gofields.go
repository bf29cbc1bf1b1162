package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// GoFields wraps a value for an error message, so that structs of the API are printed as JSON with the names of their Go fields and
// nothing left out. Upstream's messages look like this because its validation works on internal types without JSON tags.
func GoFields(value any) any { return goFields{value} }

// GoFieldsDiff returns a unified diff of two values, each printed as GoFields prints it.
func GoFieldsDiff(before, after any) string { return diff.Diff(goFields{before}, goFields{after}) }

// ImmutableStruct is Immutable for a value that errors print as GoFields does.
func ImmutableStruct(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(old, value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, GoFields(value), validation.FieldImmutableErrorMsg)}
}

type goFields struct{ value any }

// MarshalJSON implements json.Marshaler.
func (g goFields) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	if err := writeGoFields(&out, reflect.ValueOf(g.value)); err != nil {
		return nil, fmt.Errorf("show %T: %w", g.value, err)
	}
	return out.Bytes(), nil
}

// isAPIStruct reports whether a struct is printed with its Go names; structs of other packages are printed as usual.
func isAPIStruct(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), "k8s.io/api/") }

func writeGoFields(out *bytes.Buffer, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Invalid:
		out.WriteString("null")
		return nil
	case reflect.Pointer:
		if v.IsNil() {
			out.WriteString("null")
			return nil
		}
		return writeGoFields(out, v.Elem())
	case reflect.Struct:
		if isAPIStruct(v.Type()) {
			out.WriteByte('{')
			first := true
			err := writeStructFields(out, v, &first)
			out.WriteByte('}')
			return err
		}
	case reflect.Slice:
		if !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
			return writeSlice(out, v)
		}
	case reflect.Map:
		if !v.IsNil() {
			return writeMap(out, v)
		}
	}
	text, err := json.Marshal(v.Interface())
	out.Write(text)
	return err
}

// writeStructFields writes the fields of a struct, and those of embedded structs in their place.
func writeStructFields(out *bytes.Buffer, v reflect.Value, first *bool) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := writeEmbedded(out, v.Field(i), first); err != nil {
				return err
			}
			continue
		}
		writeComma(out, first)
		fmt.Fprintf(out, "%q:", f.Name)
		if err := writeGoFields(out, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func writeEmbedded(out *bytes.Buffer, v reflect.Value, first *bool) error {
	if isAPIStruct(v.Type()) {
		return writeStructFields(out, v, first)
	}
	text, err := json.Marshal(v.Interface())
	if fields := bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")); len(fields) > 0 {
		writeComma(out, first)
		out.Write(fields)
	}
	return err
}

func writeSlice(out *bytes.Buffer, v reflect.Value) error {
	out.WriteByte('[')
	first := true
	for i := range v.Len() {
		writeComma(out, &first)
		if err := writeGoFields(out, v.Index(i)); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func writeMap(out *bytes.Buffer, v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	out.WriteByte('{')
	first := true
	for _, k := range keys {
		writeComma(out, &first)
		name, err := json.Marshal(k.String())
		if err != nil {
			return err
		}
		out.Write(name)
		out.WriteByte(':')
		if err := writeGoFields(out, v.MapIndex(k)); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func writeComma(out *bytes.Buffer, first *bool) {
	if !*first {
		out.WriteByte(',')
	}
	*first = false
}
