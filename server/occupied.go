package server

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// Most definitions of a cluster have no objects. What watches all resources, as the garbage collector does, would keep a cache, a watch of
// the store and goroutines for each of them. So the State knows which custom resources have had an object, and tells when that
// becomes true of one.

// Occupied says that a resource may have objects. It is false only for a custom resource, and only as long as it is certain that there are
// none: from before the first of them is stored it is true, until the definition goes.
func (s *State) Occupied(gr schema.GroupResource) bool {
	def := s.defs.Load().stored[gr]
	if def == nil || def.Load == nil || !s.Alone {
		return true
	}
	if occupied, known := s.occupation(def.Stored); known {
		return occupied
	}
	page, err := s.Store.List(s.ctx, kv.Range{Prefix: def.Prefix(), Limit: 1})
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.occupied[def.Stored] { // by a write that began after the look into the store
		return true
	}
	s.occupied[def.Stored] = len(page.Pairs) > 0
	return s.occupied[def.Stored]
}

func (s *State) occupation(stored string) (occupied, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	occupied, known = s.occupied[stored]
	return occupied, known
}

// NewlyOccupied is signalled after a custom resource has become occupied. One reader may have it.
func (s *State) NewlyOccupied() <-chan struct{} { return s.newlyOccupied }

// occupy notes that an object of a resource is about to be stored.
func (s *State) occupy(def *kind.Def) {
	if def.Load == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.occupied[def.Stored] {
		return
	}
	s.occupied[def.Stored] = true
	select {
	case s.newlyOccupied <- struct{}{}:
	default:
	}
}
