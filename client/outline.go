package client

import "proa.dev/kinds/kind"

// Outlines returns a view that shows the same objects without their large parts, such as CustomResourceDefinitions
// without their schemas, which saves decoding them. It suits callers that look at names and conditions of many objects.
// If the view does not support outlines, it is returned itself. An outline must not be written back: use WholeObject to get
// the object to write.
func Outlines(v View) View {
	if o, ok := v.(interface{ Outlines() View }); ok {
		return o.Outlines()
	}
	return v
}

// WholeObject returns an object with all its parts, even from a view that shows outlines.
func WholeObject(v View, namespace, name string) (kind.Object, bool) {
	if w, ok := v.(interface {
		Whole(namespace, name string) (kind.Object, bool)
	}); ok {
		return w.Whole(namespace, name)
	}
	return v.Get(namespace, name)
}
