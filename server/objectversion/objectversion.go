// Package objectversion converts the objects of a write to the version that an admission webhook or policy wants to
// see, and puts back what they return. It calls nobody and decides nothing.
package objectversion

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
)

// Write is a write whose objects can be converted to any version of its resource.
type Write struct {
	*kind.Admission
	sub *kind.SubDef // nil for the object itself
}

// Of returns the write of an admission.
func Of(a *kind.Admission) Write {
	w := Write{Admission: a}
	if a.Sub != "" {
		w.sub = a.Served.Sub(a.Sub)
	}
	return w
}

// ResourceOf returns the resource of a version.
func ResourceOf(def *kind.Def) schema.GroupVersionResource {
	return def.GroupVersion().WithResource(def.Plural)
}

// ObjectName returns the name of the object. Before hop 6 it is empty if the server generates the name.
func (w Write) ObjectName() string {
	if w.isGenerated() {
		return ""
	}
	return w.Name
}

// isGenerated reports whether the server has generated the name of the object from its generateName, which nobody sees
// before hop 6.
func (w Write) isGenerated() bool {
	if w.Verb != "create" || w.Final || w.Sub != "" || w.Admission.Object == nil {
		return false
	}
	const random = 5
	obj := w.Admission.Object
	base, n := obj.GetGenerateName(), len(w.Name)-random
	return base != "" && n > 0 && n <= len(base) && obj.GetName() == w.Name && strings.HasPrefix(base, w.Name[:n])
}

// isAction reports whether the body is of a kind of its own, such as an Eviction.
func (w Write) isAction() bool { return w.sub != nil && w.sub.Body != nil && w.sub.View == nil }

// Attributes returns the write in the form of the libraries that evaluate expressions, without its objects.
func (w Write) Attributes() admission.Attributes {
	return admission.NewAttributesRecord(
		nil, nil, admissionmatch.Kind(w.Served, w.Sub), admissionmatch.Namespace(w.Admission), w.ObjectName(), ResourceOf(w.Served), w.Sub,
		admission.Operation(admissionmatch.Operation(w.Admission)), w.Options, w.DryRun, w.User)
}

// Objects returns the object and the old object in a version; nil where there is none. For a connection the object is
// its options. The results may be shared, and are read-only.
func (w Write) Objects(ctx context.Context, def *kind.Def) (object, old runtime.Object, err error) {
	was, err := w.show(ctx, w.Old, def)
	if err != nil {
		return nil, nil, err
	}
	if was != nil {
		old = was
	}
	is, err := w.show(ctx, w.Admission.Object, def)
	switch {
	case err != nil:
		return nil, nil, err
	case is != nil && w.isGenerated():
		is = shallowCopy(is)
		is.SetName("")
		object = is
	case is != nil:
		object = is
	case w.Connect != nil:
		object = w.Connect
	}
	return object, old, nil
}

// show returns an object of the write in a version, without changing it.
func (w Write) show(ctx context.Context, obj kind.Object, def *kind.Def) (kind.Object, error) {
	gvk := admissionmatch.Kind(def, w.Sub)
	switch {
	case obj == nil:
		return nil, nil
	case w.sub != nil && w.sub.View != nil:
		view, err := w.sub.View(obj)
		if err != nil {
			return nil, err
		}
		return WithKind(view, gvk), nil
	case w.isAction(): // the body is the object
		return WithKind(obj, gvk), nil
	}
	converted, err := kind.Convert(ctx, obj, w.Def, def)
	if err != nil {
		return nil, err
	}
	return WithKind(converted, gvk), nil
}

// Store replaces the object of the write by one in a version.
func (w Write) Store(ctx context.Context, obj kind.Object, def *kind.Def) error {
	current := w.Admission.Object
	switch {
	case w.sub != nil && w.sub.View != nil:
		parent := current.DeepCopyObject().(kind.Object)
		if err := w.sub.Change(parent, obj); err != nil {
			return err
		}
		obj = parent
	case w.isAction():
	default:
		if w.isGenerated() && obj.GetName() == "" {
			obj = shallowCopy(obj)
			obj.SetName(w.Name)
		}
		var err error
		if obj, err = kind.Convert(ctx, obj, def, w.Def); err != nil {
			return err
		}
	}
	if reflect.TypeOf(obj) != reflect.TypeOf(current) {
		return fmt.Errorf("a %T cannot take the place of a %T", obj, current)
	}
	w.Patch(WithKind(obj, current.GetObjectKind().GroupVersionKind()))
	return nil
}

// NewObject returns an empty body for a version.
func (w Write) NewObject(def *kind.Def) kind.Object {
	if w.sub != nil && w.sub.Body != nil && w.sub.Body.New != nil {
		return w.sub.Body.New()
	}
	return def.New()
}

// Complete drops the fields that the schema of a custom resource does not have, and sets defaults.
func (w Write) Complete(obj kind.Object, def *kind.Def) error {
	if w.sub != nil && w.sub.Body != nil {
		if w.sub.Body.Default != nil {
			w.sub.Body.Default(obj)
		}
		return nil
	}
	if def.Coerce != nil {
		if _, err := def.Coerce(obj, false); err != nil {
			return err
		}
	}
	def.Default(obj)
	return nil
}

// WithKind returns an object with its kind set: itself if it has it, or else a copy, because others may read it.
func WithKind(obj kind.Object, gvk schema.GroupVersionKind) kind.Object {
	if obj.GetObjectKind().GroupVersionKind() == gvk {
		return obj
	}
	out := shallowCopy(obj)
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return out
}

// shallowCopy copies an object so far that its kind and its name can be changed without changing the original.
func shallowCopy(obj kind.Object) kind.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.DeepCopy()
	}
	v := reflect.ValueOf(obj).Elem()
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface().(kind.Object)
}
