package schema

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// typeConverter converts objects to values of structured-merge-diff, by their embedded types.
type typeConverter struct {
	scheme *runtime.Scheme
	types  *types
}

// TypeConverter returns the converter for objects of a built-in kind; nil if the kind is not one of them.
func (o *Owner) TypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	name, err := o.scheme.ToOpenAPIDefinitionName(gvk)
	if err != nil {
		return nil
	}
	if t, err := o.types.kind(name); err != nil || t == nil {
		return nil
	}
	return &typeConverter{o.scheme, o.types}
}

func (v *typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	name, err := v.scheme.ToOpenAPIDefinitionName(gvk)
	if err != nil {
		return nil, err
	}
	t, err := v.types.kind(name)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, runtime.NewNotRegisteredErrForKind("embedded types", gvk)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(u.UnstructuredContent(), opts...)
	}
	return t.FromStructured(obj, opts...)
}

func (v *typeConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	m, ok := value.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a value of type %T is not an object", value.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: m}, nil
}

// sameVersion skips conversions to the version that an object has already, without the deep copy that a scheme makes:
// the field managers only read what they convert, and most kinds have one version.
type sameVersion struct {
	runtime.ObjectConvertor
	scheme *runtime.Scheme
}

func (c sameVersion) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	gv, ok := target.(schema.GroupVersion)
	if !ok {
		return c.ObjectConvertor.ConvertToVersion(in, target)
	}
	if _, ok := in.(runtime.Unstructured); ok {
		return c.ObjectConvertor.ConvertToVersion(in, target)
	}
	gvks, _, err := c.scheme.ObjectKinds(in)
	if err != nil {
		return nil, err
	}
	for _, gvk := range gvks {
		if gvk.GroupVersion() == gv {
			return withKind(in, gvk), nil
		}
	}
	return c.ObjectConvertor.ConvertToVersion(in, target)
}

// withKind returns the object with its kind set: itself when it has it, or else a shallow copy, because others may read
// the object.
func withKind(in runtime.Object, gvk schema.GroupVersionKind) runtime.Object {
	if in.GetObjectKind().GroupVersionKind() == gvk {
		return in
	}
	v := reflect.ValueOf(in).Elem()
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	out := p.Interface().(runtime.Object)
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return out
}
