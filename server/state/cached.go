package state

import (
	"iter"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
)

// peek reads an object from its cache, without waiting for the newest state. Hops 2 and 3 decide on every request; a
// revoked right is gone when its event has arrived, which takes a moment.
func (s *State) peek(gr schema.GroupResource, namespace, name string) (kind.Object, bool) {
	def := s.Def(gr)
	e, found := s.Cache(def).Get(def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return e.Object(), true
}

// CachedUID returns the UID of an object that is in the cache; empty if there is none.
func (s *State) CachedUID(gr schema.GroupResource, namespace, name string) types.UID {
	if o, found := s.peek(gr, namespace, name); found {
		return o.GetUID()
	}
	return ""
}

// Cached yields the objects of a namespace, or of all, from the cache, without waiting for the newest state.
func Cached[P kind.Object](s *State, gr schema.GroupResource, namespace string) iter.Seq[P] {
	def := s.Def(gr)
	entries, _ := s.Cache(def).List(KeyPrefix(def, namespace), nil)
	return func(yield func(P) bool) {
		for _, e := range entries {
			if o, ok := e.Object().(P); ok && !yield(o) {
				return
			}
		}
	}
}

// RBACResource returns a resource of the RBAC group by its plural.
func RBACResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
}
