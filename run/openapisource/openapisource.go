// Package openapisource gives what the OpenAPI documents of a server describe: its built-in resources, and the custom resources that
// are served now.
package openapisource

import (
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/crdopenapi"
	"proa.dev/server/customresource"
	"proa.dev/server/openapi"
	"proa.dev/server/state"
	"proa.dev/server/traceopenapi"
)

// Resources describes resources by their descriptors. Those of the group without are left out: the published documents know no
// schema of it, see Groups.
func Resources(defs []*kind.Def, without string) []openapi.Resource {
	out := make([]openapi.Resource, 0, len(defs))
	for _, d := range defs {
		if d.Group == without {
			continue
		}
		r := openapi.Resource{
			Group: d.Group, Version: d.Version, Kind: d.Kind, Plural: d.Plural, Singular: d.Singular,
			Namespaced: d.Scope == kind.Namespaced, Verbs: d.Verbs, DeleteReturnsObject: d.Storage().Deletion.ReturnsObject &&
				d.Plural != "namespaces",
		}
		for _, s := range d.Subs {
			sub := openapi.Sub{Name: s.Name, Kind: d.Kind, Verbs: s.Verbs}
			if s.Body != nil {
				sub.Group, sub.Version, sub.Kind = s.Body.Group, s.Body.Version, s.Body.Kind
			}
			r.Subresources = append(r.Subresources, sub)
		}
		out = append(out, r)
	}
	return out
}

// Groups returns a function that returns the groups whose schemas are not among the published ones: those of the custom resources that
// are served now, and the group of traces with those of the descriptors that are its own.
func Groups(s *state.State, defs []*kind.Def) func() []openapi.Group {
	own := traceopenapi.Group(defs)
	return func() []openapi.Group {
		out := crdopenapi.Groups(Definitions(s))
		for i, g := range out {
			if g.Group == own.Group && g.Version == own.Version { // somebody has defined resources in the group of traces
				out[i].Tag = own.Tag + " " + g.Tag
				out[i].Custom = func() []openapi.Custom { return append(own.Custom(), g.Custom()...) }
				return out
			}
		}
		return append(out, own)
	}
}

// Definitions returns the served CustomResourceDefinitions from the cache, without waiting for the newest change: it is
// called for each request.
func Definitions(s *state.State) (out []crdopenapi.Source) {
	def := s.Def(gr.CustomResourceDefinitions)
	if def == nil {
		return nil
	}
	entries, _ := s.Cache(def).List(def.Prefix(), nil)
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
