package run

import (
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/crdopenapi"
	"proa.dev/server/customresource"
	"proa.dev/server/openapi"
)

// describedGroups returns the groups that OpenAPI shows beside the built-in ones: custom resources, and those of
// aggregated servers.
func (s *Server) describedGroups() []openapi.Group {
	return append(crdopenapi.Groups(s.definitions()), s.remoteDescriptions()...)
}

// definitions returns the served CustomResourceDefinitions from the cache, without waiting for the newest change: it is
// called for each request.
func (s *Server) definitions() (out []crdopenapi.Source) {
	def := s.state.Def(gr.CustomResourceDefinitions)
	if def == nil {
		return nil
	}
	entries, _ := s.state.Cache(def).List(def.Prefix(), nil)
	for _, e := range entries {
		d, ok := e.Outline().(*customresource.Definition)
		if !ok || !customresource.IsServed(d) {
			continue
		}
		out = append(out, crdopenapi.Source{Outline: d, Whole: func() *customresource.Definition {
			if whole, ok := e.Object().(*customresource.Definition); ok {
				return whole
			}
			return d
		}})
	}
	return out
}
