package kind

import (
	"context"
	"fmt"
)

// Convert returns an object of one served version of a resource in another one. It returns obj itself where no
// conversion is needed, and does not change it.
func Convert(ctx context.Context, obj Object, from, to *Def) (Object, error) {
	switch {
	case from == to || from.GroupVersionKind == to.GroupVersionKind:
		return obj, nil
	case from.Convert != nil:
		return from.Convert(ctx, obj, to.GroupVersion())
	case from.Storage() != to.Storage():
		return nil, fmt.Errorf("%s cannot be converted to %s", from.GroupVersionKind, to.GroupVersionKind)
	}
	if from.Hub != nil {
		obj = from.ToHub(obj)
		obj.GetObjectKind().SetGroupVersionKind(from.Hub.GroupVersionKind)
	}
	if to.Hub != nil {
		obj = to.FromHub(obj)
		obj.GetObjectKind().SetGroupVersionKind(to.GroupVersionKind)
	}
	return obj, nil
}
