package schema

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// shape is how values of a Go type are owned.
type shape int

const (
	// opaque values are left to the library unless nothing about them changed.
	opaque shape = iota
	// whole values have one owner: scalars, atomic lists and atomic maps.
	whole
	// fields is a struct whose fields have owners.
	fields
	// entries is a map whose entries have owners.
	entries
	// keyed is a list of structs that are identified by some of their fields.
	keyed
	// members is a list of scalars without order.
	members
)

// plan describes how to compare two values of one Go type for ownership. It is made once for a type and then only read.
type plan struct {
	shape   shape
	goType  reflect.Type // without pointer
	fields  []planField  // of fields, in the order of their JSON names
	keys    []planKey    // of keyed, in the order of their JSON names
	element *plan        // of entries, keyed and members
	mixed   bool         // of whole: a null is not compared as a scalar
}

type planField struct {
	json      string
	name      string // its name in a set
	index     []int
	omitEmpty bool
	omitZero  func(reflect.Value) bool
	plan      *plan
}

type planKey struct {
	json    string
	field   *planField
	missing keyValue // the value for an item without the field
}

// planner makes plans of Go types from their structured-merge-diff types.
type planner struct {
	schema *smd.Schema
	made   map[planID]*plan
}

type planID struct {
	goType   reflect.Type
	named    string
	relation smd.ElementRelationship
}

// plan returns the plan of a Go type that a reference describes.
func (p *planner) plan(t reflect.Type, ref smd.TypeRef) *plan {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	atom, ok := p.schema.Resolve(ref)
	if !ok {
		return &plan{goType: t}
	}
	if ref.NamedType == nil {
		return p.fill(&plan{goType: t}, atom)
	}
	key := planID{goType: t, named: *ref.NamedType}
	if ref.ElementRelationship != nil {
		key.relation = *ref.ElementRelationship
	}
	if have := p.made[key]; have != nil {
		return have
	}
	made := &plan{goType: t}
	p.made[key] = made // before its content, because types may contain themselves
	return p.fill(made, atom)
}

func (p *planner) fill(out *plan, a smd.Atom) *plan {
	t := out.goType
	granular := (a.List != nil && a.List.ElementRelationship != smd.Atomic) || (a.Map != nil && a.Map.ElementRelationship != smd.Atomic)
	if !granular && (a.Scalar != nil || a.List != nil || a.Map != nil) {
		out.shape = whole
		return out
	}
	if t == reflect.TypeFor[intstr.IntOrString]() && a.Scalar != nil {
		out.shape, out.mixed = whole, true
		return out
	}
	if converts(t) || (a.List != nil && a.Map != nil) || a.Scalar != nil {
		return out
	}
	switch {
	case t.Kind() == reflect.Struct && a.Map != nil:
		p.fillStruct(out, a.Map)
	case t.Kind() == reflect.Map && a.Map != nil && t.Key().Kind() == reflect.String:
		out.shape, out.element = entries, p.plan(t.Elem(), a.Map.ElementType)
	case t.Kind() == reflect.Slice && a.List != nil:
		p.fillList(out, a.List)
	}
	return out
}

// converts reports whether values of a type are converted for the library by a method of the type.
func converts(t reflect.Type) bool {
	marshaler := reflect.TypeFor[json.Marshaler]()
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

func (p *planner) fillStruct(out *plan, m *smd.Map) {
	out.shape = fields
	out.fields = structFields(out.goType, nil)
	for i := range out.fields {
		f := &out.fields[i]
		ref := m.ElementType
		if sf, ok := m.FindField(f.json); ok {
			ref = sf.Type
		}
		f.plan = p.plan(out.goType.FieldByIndex(f.index).Type, ref)
	}
}

// structFields returns the fields that a struct has in JSON, by name. When fields have the same name, the last one
// wins, as in the library.
func structFields(t reflect.Type, prefix []int) []planField {
	byName := map[string]planField{}
	collectFields(t, prefix, byName)
	out := make([]planField, 0, len(byName))
	for _, f := range byName {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b planField) int { return cmp.Compare(a.json, b.json) })
	return out
}

func collectFields(t reflect.Type, prefix []int, byName map[string]planField) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || (!f.IsExported() && !f.Anonymous) {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		index := append(slices.Clone(prefix), i)
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			collectFields(f.Type, index, byName)
			continue
		}
		if name == "" {
			name = f.Name
		}
		field := planField{json: name, name: escape("f:" + name), index: index}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty":
				field.omitEmpty = true
			case "omitzero":
				field.omitZero = value.OmitZeroFunc(f.Type)
			}
		}
		byName[name] = field
	}
}

func (p *planner) fillList(out *plan, l *smd.List) {
	element := p.plan(out.goType.Elem(), l.ElementType)
	if len(l.Keys) == 0 {
		if k := out.goType.Elem().Kind(); element.shape == whole && (k == reflect.String || k == reflect.Int32 || k == reflect.Int64) &&
			!converts(out.goType.Elem()) {
			out.shape, out.element = members, element
		}
		return
	}
	if out.goType.Elem().Kind() != reflect.Struct || converts(out.goType.Elem()) || len(l.Keys) > maxKeys {
		return
	}
	// The element may have one owner as a whole, and still be identified by its fields.
	inner := structFields(out.goType.Elem(), nil)
	item, ok := p.schema.Resolve(l.ElementType)
	if !ok || item.Map == nil {
		return
	}
	for _, name := range slices.Sorted(slices.Values(l.Keys)) {
		i := slices.IndexFunc(inner, func(f planField) bool { return f.json == name })
		if i < 0 {
			return
		}
		key := planKey{json: name, field: &inner[i]}
		t := out.goType.Elem().FieldByIndex(inner[i].index).Type
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if converts(t) || !slices.Contains([]reflect.Kind{reflect.String, reflect.Int32, reflect.Int64, reflect.Bool}, t.Kind()) {
			return
		}
		if sf, ok := item.Map.FindField(name); ok && sf.Default != nil {
			if key.missing, ok = keyValueOf(sf.Default); !ok {
				return
			}
		}
		out.keys = append(out.keys, key)
	}
	out.shape, out.element = keyed, element
}

// maxKeys is the largest number of key fields that a keyed list may have here; the longest list in use has four.
const maxKeys = 4

// keyValue is the value of one key field; its kind is zero when the item has none.
type keyValue struct {
	kind reflect.Kind
	s    string
	i    int64
}

func keyValueOf(v any) (keyValue, bool) {
	switch v := v.(type) {
	case string:
		return keyValue{kind: reflect.String, s: v}, true
	case int64:
		return keyValue{kind: reflect.Int64, i: v}, true
	case bool:
		k := keyValue{kind: reflect.Bool}
		if v {
			k.i = 1
		}
		return k, true
	}
	return keyValue{}, false
}
