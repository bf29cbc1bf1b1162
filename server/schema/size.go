package schema

import (
	"bytes"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// maxTracked is the number of items of one list, or keys of one map, whose owners the library can track in reasonable
// time: it takes a second for as many, and the square of it for more. Where there are several such lists, their squares
// add up.
const maxTracked = 16_384

var errTooManyFields = errors.New("the object has too many items in a list, or keys in a map, to track their owners; " +
	"16384 can be tracked: split the object")

// checkSize returns an error for objects whose owners the library cannot track in reasonable time: those with very long
// lists and maps, atomic ones included, and very many owned fields.
func checkSize(all ...runtime.Object) error {
	for _, o := range all {
		s := size{left: maxTracked * maxTracked}
		if !s.add(reflect.ValueOf(o)) {
			return errTooManyFields
		}
		accessor, err := meta.Accessor(o)
		if err != nil {
			continue
		}
		fields := 0
		for _, e := range accessor.GetManagedFields() {
			if e.FieldsV1 != nil {
				fields += bytes.Count(e.FieldsV1.GetRawBytes(), []byte("{"))
			}
		}
		if !s.take(fields) {
			return errTooManyFields
		}
	}
	return nil
}

// Bounded returns types that refuse objects whose fields take too long to merge.
func Bounded(types managedfields.TypeConverter) managedfields.TypeConverter {
	if types == nil {
		return nil
	}
	return bounded{types}
}

type bounded struct{ managedfields.TypeConverter }

func (b bounded) ObjectToTyped(o runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if err := checkSize(o); err != nil {
		return nil, err
	}
	return b.TypeConverter.ObjectToTyped(o, options...)
}

// size adds up the squares of the lengths of lists and maps.
type size struct{ left int }

// take reports whether a list of some length fits into what is left.
func (s *size) take(n int) bool {
	s.left -= min(n, maxTracked+1) * min(n, maxTracked+1)
	return s.left >= 0
}

// add reports whether a value fits into what is left.
func (s *size) add(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || s.add(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if !s.add(v.Field(i)) {
				return false
			}
		}
	case reflect.Map:
		if !s.take(v.Len()) {
			return false
		}
		for it := v.MapRange(); isNested(v.Type().Elem()) && it.Next(); {
			if !s.add(it.Value()) {
				return false
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return true
		}
		if !s.take(v.Len()) {
			return false
		}
		for i := range v.Len() {
			if !isNested(v.Type().Elem()) {
				break
			}
			if !s.add(v.Index(i)) {
				return false
			}
		}
	}
	return true
}

// isNested reports whether values of a type may have lists or maps in them.
func isNested(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return true
	}
	return false
}
