package server

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
)

// TypeConverter returns the types by which a configuration is applied to objects of a kind, built-in or custom; nil if there is no such
// kind now.
func (s *Server) TypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	if types := s.Owner.TypeConverter(gvk); types != nil {
		return types
	}
	def := s.State.kind(gvk)
	if def == nil {
		return nil
	}
	c := s.State.custom(def)
	if c == nil {
		return nil
	}
	types, err := c.Types()
	if err != nil {
		s.Log.Warn("the schema of a custom resource cannot be used to apply configurations", "kind", gvk, "err", err)
	}
	return types.Converter
}
