package gateway

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// decoded keeps objects of the standard that were read, so that each version of one is decoded once.
type decoded struct {
	read map[types.UID]version
}

type version struct {
	resourceVersion string
	object          any // a pointer to a type of the standard
}

// list reads the objects of a resource of the standard. One that cannot be read is left out: the definition has checked it.
func list[T any](s *server, name string) (out []*T) {
	view := s.custom[name]
	if view == nil {
		return nil
	}
	if s.decoded.read == nil {
		s.decoded.read = map[types.UID]version{}
	}
	for o := range view.List("") {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if have, ok := s.decoded.read[u.GetUID()]; ok && have.resourceVersion == u.GetResourceVersion() {
			if t, ok := have.object.(*T); ok {
				out = append(out, t)
				continue
			}
		}
		t := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
			s.Log.Warn("an object cannot be read", "resource", name, "namespace", u.GetNamespace(), "name", u.GetName(), "err", err)
			continue
		}
		s.decoded.read[u.GetUID()] = version{u.GetResourceVersion(), t}
		out = append(out, t)
	}
	return out
}
