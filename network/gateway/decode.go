package gateway

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// decoded keeps objects of the standard that were read, so that each version of one is decoded once.
type decoded struct {
	read map[types.UID]version
	pass int
}

type version struct {
	resourceVersion string
	object          any // a pointer to a type of the standard
	pass            int // in which it was seen last
}

// begin starts to read everything anew, and end forgets what was not there any more.
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

// list reads the objects of a resource of the standard. One that cannot be read is left out: the definition has checked it.
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
			s.Log.Warn("an object cannot be read", "resource", name, "namespace", u.GetNamespace(), "name", u.GetName(), "err", err)
			continue
		}
		s.decoded.read[u.GetUID()] = version{u.GetResourceVersion(), t, s.decoded.pass}
		out = append(out, t)
	}
	return out
}
