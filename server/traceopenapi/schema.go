package traceopenapi

import (
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/server/openapi"
)

// fields is a JSON object under construction.
type fields = map[string]any

// describer makes schemas of Go types by their JSON fields.
type describer struct {
	dialect openapi.Dialect
	texts   map[string]string
	inside  []reflect.Type // the structs that the schema being made is a part of
}

func newDescriber(d openapi.Dialect) *describer { return &describer{dialect: d, texts: descriptions()} }

// schema returns the schema of values of a type.
func (b *describer) schema(t reflect.Type) fields {
	switch t {
	case reflect.TypeFor[time.Time]():
		return fields{"type": "string", "format": "date-time"}
	case reflect.TypeFor[time.Duration]():
		return fields{"type": "integer", "format": "int64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.schema(t.Elem())
	case reflect.Slice:
		return fields{"type": "array", "items": b.schema(t.Elem())}
	case reflect.Struct:
		return b.object(t)
	case reflect.Bool:
		return fields{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return fields{"type": "integer", "format": "int64"}
	default:
		return fields{"type": "string"}
	}
}

// object returns the schema of a struct. A struct inside of itself has no fields.
func (b *describer) object(t reflect.Type) fields {
	out := fields{"type": "object"}
	if slices.Contains(b.inside, t) {
		return out
	}
	b.inside = append(b.inside, t)
	b.addFields(out, t)
	b.inside = b.inside[:len(b.inside)-1]
	return out
}

// addFields adds the fields of a struct to a schema, and those of the structs that are embedded in it.
func (b *describer) addFields(out fields, t reflect.Type) {
	for f := range eachField(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
			b.addTypes(out)
		case f.Type == reflect.TypeFor[metav1.ObjectMeta]():
			b.set(out, "metadata", b.reference("ObjectMeta", "The namespace and the name; other metadata is not set."))
		case f.Anonymous:
			b.inside = append(b.inside, f.Type)
			b.addFields(out, f.Type)
			b.inside = b.inside[:len(b.inside)-1]
		default:
			s := b.schema(f.Type)
			s["description"] = b.texts[key(t, name)]
			b.set(out, name, s)
			if !strings.Contains(options, "omit") {
				required, _ := out["required"].([]string)
				out["required"] = append(required, name)
			}
		}
	}
}

// eachField yields the exported fields of a struct that are encoded.
func eachField(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("json") != "-" && !yield(f) {
				return
			}
		}
	}
}

// key names a field in the table of descriptions.
func key(t reflect.Type, field string) string {
	folder := t.PkgPath()
	return folder[strings.LastIndexByte(folder, '/')+1:] + "." + t.Name() + "." + field
}

func (b *describer) set(s fields, name string, value fields) {
	if s["properties"] == nil {
		s["properties"] = fields{}
	}
	s["properties"].(fields)[name] = value
}

// addTypes adds the fields apiVersion and kind.
func (b *describer) addTypes(s fields) {
	for name, text := range map[string]string{
		"apiVersion": "The version of the schema of this object.", "kind": "The kind of this object.",
	} {
		b.set(s, name, fields{"type": "string", "description": text})
	}
}

// reference returns a reference to a type of meta/v1. In v3 a reference has no fields beside it.
func (b *describer) reference(name, text string) fields {
	ref := fields{"$ref": b.dialect.Reference("io.k8s.apimachinery.pkg.apis.meta.v1." + name)}
	if b.dialect == openapi.V3 {
		ref = fields{"allOf": []fields{ref}}
	}
	ref["description"] = text
	return ref
}
