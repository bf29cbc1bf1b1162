package run

import (
	"proa.dev/kinds/gr"
	"proa.dev/server/custom"
	"proa.dev/server/definitions/describe"
	"proa.dev/server/openapi"
)

// describedGroups are the groups that OpenAPI shows beside the built-in ones, as they are now: custom resources, and those of aggregated servers.
func (s *Server) describedGroups() []openapi.Group {
	return append(describe.Groups(s.definitions()), s.remoteDescriptions()...)
}

// definitions are the definitions of the custom resources that are served. They come from the cache as it is, because it is asked for each
// request; a change is there when its event has arrived, which is at once.
func (s *Server) definitions() (out []describe.Source) {
	def := s.state.Def(gr.CustomResourceDefinitions)
	if def == nil {
		return nil
	}
	entries, _ := s.state.Cache(def).List(def.Prefix(), nil)
	for _, e := range entries {
		d, ok := e.Outline().(*custom.Definition)
		if !ok || !custom.IsServed(d) {
			continue
		}
		out = append(out, describe.Source{Outline: d, Whole: func() *custom.Definition {
			if whole, ok := e.Object().(*custom.Definition); ok {
				return whole
			}
			return d
		}})
	}
	return out
}
