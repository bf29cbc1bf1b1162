package gateway

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// decoded caches the objects of the Gateway API, so that each version of one is decoded once.
type decoded struct {
	read map[types.UID]version
	pass int
}

type version struct {
	resourceVersion string
	object          any // a pointer to a type of the Gateway API
	pass            int // the last pass that has seen it
}

// begin starts a pass over all objects. end drops those that the pass has not seen.
func (d *decoded) begin() {
	if d.read == nil {
		d.read = map[types.UID]version{}
	}
	d.pass++
}

func (d *decoded) end() {
	for uid, v := range d.read {
		if v.pass != d.pass {
			delete(d.read, uid)
		}
	}
}

// list returns the objects of a resource of the Gateway API. One that cannot be decoded is left out; the schema of the definition should
// have prevented it.
func list[T any](s *server, name string) (out []*T) {
	view := s.custom[name]
	if view == nil {
		return nil
	}
	for o := range view.List("") {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if have, ok := s.decoded.read[u.GetUID()]; ok && have.resourceVersion == u.GetResourceVersion() {
			if t, ok := have.object.(*T); ok {
				have.pass = s.decoded.pass
				s.decoded.read[u.GetUID()] = have
				out = append(out, t)
				continue
			}
		}
		t := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
			s.Log.Warn("an object of the Gateway API cannot be decoded", "resource", name, "namespace", u.GetNamespace(), "name",
				u.GetName(), "err", err)
			continue
		}
		s.decoded.read[u.GetUID()] = version{u.GetResourceVersion(), t, s.decoded.pass}
		out = append(out, t)
	}
	return out
}
