package state

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// Occupied says that a resource may have objects. It is false only for a custom resource that is known to have none; it
// becomes true before the first object is stored, and stays so until the definition is deleted.
//
// Most definitions of a cluster have no objects. A controller that watches all resources, as the garbage collector
// does, asks Occupied, so that it does not keep a cache, a watch of the store and goroutines for each of them.
func (s *State) Occupied(gr schema.GroupResource) bool {
	def := s.defs.Load().stored[gr]
	if def == nil || def.Load == nil || !s.SoleWriter {
		return true
	}
	if occupied, known := s.knownOccupied(def.StorageFolder); known {
		return occupied
	}
	page, err := s.Store.List(s.ctx, kv.Range{Prefix: def.Prefix(), Limit: 1})
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.occupied[def.StorageFolder] { // by a write that began after the list
		return true
	}
	s.occupied[def.StorageFolder] = len(page.Pairs) > 0
	return s.occupied[def.StorageFolder]
}

// knownOccupied returns whether a resource is occupied, if that is known already.
func (s *State) knownOccupied(stored string) (occupied, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	occupied, known = s.occupied[stored]
	return occupied, known
}

// NewlyOccupied returns the channel that receives after a custom resource has become occupied. Only one goroutine may
// receive from it.
func (s *State) NewlyOccupied() <-chan struct{} { return s.newlyOccupied }

// MarkOccupied records that an object of a resource is about to be stored.
func (s *State) MarkOccupied(def *kind.Def) {
	if def.Load == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.occupied[def.StorageFolder] {
		return
	}
	s.occupied[def.StorageFolder] = true
	s.newlyOccupied.Send()
}
