package check

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Internal shows a value in an error as servers have always shown it: API structs with the names of their
// Go fields and nothing left out.
func Internal(value any) any { return goNames{value} }

type goNames struct{ value any }

// MarshalJSON implements json.Marshaler.
func (g goNames) MarshalJSON() ([]byte, error) {
	v := reflect.ValueOf(g.value)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case !v.IsValid() || v.Kind() == reflect.Pointer:
		return []byte("null"), nil
	case v.Kind() == reflect.Slice && v.IsNil():
		return []byte("null"), nil
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = goNames{v.Index(i).Interface()}
		}
		return json.Marshal(items)
	case v.Kind() == reflect.Struct && strings.HasPrefix(v.Type().PkgPath(), "k8s.io/api/"):
		return structJSON(v)
	}
	return json.Marshal(v.Interface())
}

func structJSON(v reflect.Value) ([]byte, error) {
	var parts []string
	for i := range v.NumField() {
		f := v.Type().Field(i)
		part, err := json.Marshal(goNames{v.Field(i).Interface()})
		if err != nil {
			return nil, err
		}
		switch {
		case f.Anonymous: // its fields stand beside the others
			if inner := strings.TrimSuffix(strings.TrimPrefix(string(part), "{"), "}"); inner != "" {
				parts = append(parts, inner)
			}
		default:
			parts = append(parts, `"`+f.Name+`":`+string(part))
		}
	}
	return []byte("{" + strings.Join(parts, ",") + "}"), nil
}
