package policyadmission

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/quantity"
)

// objects makes and recognises objects for the library's JSON patches, which encode and decode them. It has no more than these ask for.
type objects struct {
	request *request
	target  target
}

// GetObjectCreater returns what makes new objects.
func (o objects) GetObjectCreater() runtime.ObjectCreater { return o }

// GetObjectTyper returns what tells kinds of objects.
func (o objects) GetObjectTyper() runtime.ObjectTyper { return o }

// GetObjectDefaulter returns nil: defaults are filled in after the patch.
func (objects) GetObjectDefaulter() runtime.ObjectDefaulter { return nil }

// GetObjectConvertor returns nil: objects are converted before and after.
func (objects) GetObjectConvertor() runtime.ObjectConvertor { return nil }

// GetEquivalentResourceMapper returns nil: the write has been matched before.
func (objects) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return nil }

// New makes an empty object of a kind.
func (o objects) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if gvk == o.target.kind {
		return &bounded{o.request.NewObject(o.target.def)}, nil
	}
	if def := o.request.Kind(gvk); def != nil {
		return &bounded{def.New()}, nil
	}
	return nil, runtime.NewNotRegisteredErrForKind("admission", gvk)
}

// bounded is an object that is decoded strictly and with bounded quantities. The library decodes without bounds.
type bounded struct{ kind.Object }

// UnmarshalJSON decodes the object.
func (b *bounded) UnmarshalJSON(text []byte) error {
	if err := quantity.InJSON(text, reflect.TypeOf(b.Object)); err != nil {
		return err
	}
	found, err := kjson.UnmarshalStrict(text, b.Object)
	if err == nil && len(found) > 0 {
		err = runtime.NewStrictDecodingError(found)
	}
	return err
}

// ObjectKinds returns the kind of an object, which is that of the target if it does not say another one.
func (o objects) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return []schema.GroupVersionKind{gvk}, false, nil
	}
	return []schema.GroupVersionKind{o.target.kind}, false, nil
}

// Recognizes reports whether objects of a kind can be made.
func (o objects) Recognizes(gvk schema.GroupVersionKind) bool {
	return gvk == o.target.kind || o.request.Kind(gvk) != nil
}
