package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"
)

// shown is a part of a pod as error messages show it: as JSON with the names of the Go fields and nothing
// left out. Clients know these texts, so they are kept.
type shown struct{ value any }

// MarshalJSON writes the value with the names of its Go fields.
func (s shown) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	if err := showJSON(&out, reflect.ValueOf(s.value)); err != nil {
		return nil, fmt.Errorf("show %T: %w", s.value, err)
	}
	return out.Bytes(), nil
}

// showDiff is the difference of two values as a unified diff of what shown prints.
func showDiff(old, new any) string { return diff.Diff(shown{old}, shown{new}) }

// corePackage is the import path of the types that are shown with their Go names; all others
// are shown as usual.
var corePackage = reflect.TypeFor[corev1.Pod]().PkgPath()

func showJSON(out *bytes.Buffer, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Invalid:
		out.WriteString("null")
		return nil
	case reflect.Pointer:
		if v.IsNil() {
			out.WriteString("null")
			return nil
		}
		return showJSON(out, v.Elem())
	case reflect.Struct:
		if v.Type().PkgPath() == corePackage {
			return showStruct(out, v)
		}
	case reflect.Slice:
		if !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
			return showSlice(out, v)
		}
	case reflect.Map:
		if !v.IsNil() {
			return showMap(out, v)
		}
	}
	text, err := json.Marshal(v.Interface())
	out.Write(text)
	return err
}

func showStruct(out *bytes.Buffer, v reflect.Value) error {
	out.WriteByte('{')
	first := true
	err := showFields(out, v, &first)
	out.WriteByte('}')
	return err
}

// showFields writes the fields of a struct, those of embedded structs in their place.
func showFields(out *bytes.Buffer, v reflect.Value, first *bool) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := showEmbedded(out, v.Field(i), first); err != nil {
				return err
			}
			continue
		}
		comma(out, first)
		fmt.Fprintf(out, "%q:", f.Name)
		if err := showJSON(out, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func showEmbedded(out *bytes.Buffer, v reflect.Value, first *bool) error {
	if v.Type().PkgPath() == corePackage {
		return showFields(out, v, first)
	}
	text, err := json.Marshal(v.Interface())
	if fields := bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")); len(fields) > 0 {
		comma(out, first)
		out.Write(fields)
	}
	return err
}

func showSlice(out *bytes.Buffer, v reflect.Value) error {
	out.WriteByte('[')
	first := true
	for i := range v.Len() {
		comma(out, &first)
		if err := showJSON(out, v.Index(i)); err != nil {
			return err
		}
	}
	out.WriteByte(']')
	return nil
}

func showMap(out *bytes.Buffer, v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) })
	out.WriteByte('{')
	first := true
	for _, k := range keys {
		comma(out, &first)
		name, err := json.Marshal(k.String())
		if err != nil {
			return err
		}
		out.Write(name)
		out.WriteByte(':')
		if err := showJSON(out, v.MapIndex(k)); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

func comma(out *bytes.Buffer, first *bool) {
	if !*first {
		out.WriteByte(',')
	}
	*first = false
}
