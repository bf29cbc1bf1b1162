package policyadmission

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/quantity"
)

// objects creates objects and finds their kinds for the library's JSON patches, which encode and decode them. It
// implements only what these need.
type objects struct {
	request *request
	target  target
}

// GetObjectCreater returns the creator of new objects.
func (o objects) GetObjectCreater() runtime.ObjectCreater { return o }

// GetObjectTyper returns what finds the kinds of objects.
func (o objects) GetObjectTyper() runtime.ObjectTyper { return o }

// GetObjectDefaulter returns nil: defaults are set after the patch.
func (objects) GetObjectDefaulter() runtime.ObjectDefaulter { return nil }

// GetObjectConvertor returns nil: objects are converted before and after.
func (objects) GetObjectConvertor() runtime.ObjectConvertor { return nil }

// GetEquivalentResourceMapper returns nil: the write has been matched before.
func (objects) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return nil }

// New returns an empty object of a kind.
func (o objects) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if gvk == o.target.kind {
		return &bounded{o.request.NewObject(o.target.def)}, nil
	}
	if def := o.request.Kind(gvk); def != nil {
		return &bounded{def.New()}, nil
	}
	return nil, runtime.NewNotRegisteredErrForKind("admission", gvk)
}

// bounded is an object that is decoded strictly and with limits on quantities. The library decodes without limits.
type bounded struct{ kind.Object }

// UnmarshalJSON decodes the object.
func (b *bounded) UnmarshalJSON(text []byte) error {
	if err := quantity.CheckJSON(text, reflect.TypeOf(b.Object)); err != nil {
		return err
	}
	found, err := kjson.UnmarshalStrict(text, b.Object)
	if err == nil && len(found) > 0 {
		err = runtime.NewStrictDecodingError(found)
	}
	return err
}

// ObjectKinds returns the kind of an object; the kind of the target if the object has none.
func (o objects) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return []schema.GroupVersionKind{gvk}, false, nil
	}
	return []schema.GroupVersionKind{o.target.kind}, false, nil
}

// Recognizes reports whether objects of a kind can be created.
func (o objects) Recognizes(gvk schema.GroupVersionKind) bool {
	return gvk == o.target.kind || o.request.Kind(gvk) != nil
}
