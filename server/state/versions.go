package state

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Versions converts objects between the served versions of their kind and fills in defaults, for the field managers of
// server-side apply, which do not know descriptors.
type Versions struct {
	scheme *runtime.Scheme
	byKind map[schema.GroupVersionKind]*kind.Def
}

// NewVersions returns a converter between the versions of these descriptors.
func NewVersions(scheme *runtime.Scheme, defs []*kind.Def) *Versions {
	v := &Versions{scheme: scheme, byKind: map[schema.GroupVersionKind]*kind.Def{}}
	for _, d := range defs {
		v.byKind[d.GroupVersionKind] = d
	}
	return v
}

// def returns the descriptor of an object; nil when there is none.
func (v *Versions) def(o runtime.Object) (*kind.Def, kind.Object) {
	obj, ok := o.(kind.Object)
	if !ok {
		return nil, nil
	}
	gvks, _, err := v.scheme.ObjectKinds(o)
	if err != nil {
		return nil, nil
	}
	return v.byKind[gvks[0]], obj
}

// Default fills in what the client left out.
func (v *Versions) Default(o runtime.Object) {
	if d, obj := v.def(o); d != nil {
		d.Default(obj)
	}
}

// ConvertToVersion returns an object in another version of its kind, or itself when it has that version.
func (v *Versions) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if u, ok := in.(runtime.Unstructured); ok {
		typed, err := v.scheme.ConvertToVersion(u, u.GetObjectKind().GroupVersionKind().GroupVersion())
		if err != nil {
			return nil, err
		}
		in = typed
	}
	d, obj := v.def(in)
	if d == nil {
		return v.scheme.ConvertToVersion(in, target)
	}
	for gvk, to := range v.byKind {
		if gvk.Kind != d.Kind || to.Storage() != d.Storage() {
			continue
		}
		if got, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{gvk}); !ok || got != gvk {
			continue
		}
		if to == d {
			return in, nil
		}
		return FromHub(to, ToHub(d, obj)), nil
	}
	return nil, fmt.Errorf("%s cannot be converted to %s", d.GroupVersionKind, target)
}

// Convert sets out to in, converted to the version of out.
func (v *Versions) Convert(in, out, _ any) error {
	from, ok := in.(runtime.Object)
	to, ok2 := out.(kind.Object)
	if !ok || !ok2 {
		return fmt.Errorf("cannot convert %T to %T", in, out)
	}
	d, _ := v.def(to)
	if d == nil {
		return v.scheme.Convert(in, out, nil)
	}
	got, err := v.ConvertToVersion(from, d.GroupVersion())
	if err != nil {
		return err
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(got).Elem())
	return nil
}

// ConvertFieldLabel is part of runtime.ObjectConvertor and not used: descriptors check field selectors.
func (v *Versions) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// ToHub converts an object from the version of def to its storage version.
func ToHub(def *kind.Def, obj kind.Object) kind.Object {
	if def.Hub == nil {
		return obj
	}
	out := def.ToHub(obj)
	out.GetObjectKind().SetGroupVersionKind(def.Hub.GroupVersionKind)
	return out
}

// FromHub converts an object from its storage version to the version of def.
func FromHub(def *kind.Def, obj kind.Object) kind.Object {
	if def.Hub == nil {
		return obj
	}
	out := def.FromHub(obj)
	out.GetObjectKind().SetGroupVersionKind(def.GroupVersionKind)
	return out
}
