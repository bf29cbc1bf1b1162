package client

import "proa.dev/kinds/kind"

// Outlines is a view of the same objects at the same time that shows them without their large parts, if their resource has such and the
// view is that of a process that holds them apart: CustomResourceDefinitions without schemas. Otherwise it is the view itself. Who looks at many
// objects for their names and conditions wants it. An outline must not be written: Whole finds what may be.
func Outlines(v View) View {
	if o, ok := v.(interface{ Outlines() View }); ok {
		return o.Outlines()
	}
	return v
}

// Whole finds an object with all its parts, also in a view that shows outlines.
func Whole(v View, namespace, name string) (kind.Object, bool) {
	if w, ok := v.(interface {
		Whole(namespace, name string) (kind.Object, bool)
	}); ok {
		return w.Whole(namespace, name)
	}
	return v.Get(namespace, name)
}
