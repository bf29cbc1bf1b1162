package run

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control/gc"
	"proa.dev/kinds/kind"
)

// Resources lists every served version of every resource as it is now, custom ones included.
func (s *Server) Resources() []*kind.Def {
	if s.state == nil { // somebody wants to know the loops of a server that does not run
		return s.defs
	}
	return s.state.Defs()
}

// emptiedVerbs are those of resources that a namespace is emptied of, countedVerbs those of resources that a quota may bound.
func emptiedVerbs() []string { return []string{"deletecollection", "list"} }
func countedVerbs() []string { return []string{"create", "list", "delete"} }

// builtIn lists the built-in resources that live in namespaces and have all of some verbs.
func (s *Server) builtIn(verbs []string) []schema.GroupResource { return namespaced(s.defs, verbs) }

// custom lists the custom resources that there are now, live in namespaces and have all of some verbs.
func (s *Server) custom(verbs []string) func() []schema.GroupResource {
	return func() []schema.GroupResource {
		return namespaced(slices.DeleteFunc(slices.Clone(s.Resources()), func(d *kind.Def) bool { return !d.IsCustom() }), verbs)
	}
}

// occupancy tells the garbage collector which resources have objects.
func (s *Server) occupancy() gc.Occupancy {
	if s.state == nil {
		return gc.Occupancy{}
	}
	return gc.Occupancy{Has: s.state.Occupied, Changed: s.state.NewlyOccupied()}
}

// occupied leaves out the resources that have no objects. To look for objects would open a cache of each that is not closed again.
func (s *Server) occupied(resources func() []schema.GroupResource) func() []schema.GroupResource {
	return func() []schema.GroupResource {
		return slices.DeleteFunc(resources(), func(on schema.GroupResource) bool { return s.state != nil && !s.state.Occupied(on) })
	}
}

// namespaced lists the stored resources among some that live in namespaces and have all of some verbs, each once.
func namespaced(defs []*kind.Def, verbs []string) (out []schema.GroupResource) {
	seen := map[schema.GroupResource]bool{}
	for _, d := range defs {
		on := d.Resource()
		if d.Hub != nil || d.Scope != kind.Namespaced || seen[on] || slices.ContainsFunc(verbs, func(v string) bool { return !d.Allows(v) }) {
			continue
		}
		seen[on] = true
		out = append(out, on)
	}
	return out
}

// isBuiltIn says that a resource is not one of a definition.
func (s *Server) isBuiltIn(on schema.GroupResource) bool {
	return slices.ContainsFunc(s.defs, func(d *kind.Def) bool { return d.Resource() == on })
}

// scalable finds the resource of a kind, and says whether it has a scale.
func (s *Server) scalable(gvk schema.GroupVersionKind) (on schema.GroupResource, scales bool, err error) {
	for _, d := range s.Resources() {
		if d.GroupVersionKind == gvk {
			return d.Storage().Resource(), d.Sub("scale") != nil, nil
		}
	}
	return on, false, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
}

// ofKind finds the resources of a kind, whatever its version.
func (s *Server) ofKind(gk schema.GroupKind) (out []schema.GroupResource, err error) {
	for _, d := range s.Resources() {
		if on := d.Resource(); d.GroupVersionKind.GroupKind() == gk && d.Hub == nil && !slices.Contains(out, on) {
			out = append(out, on)
		}
	}
	if out == nil {
		err = fmt.Errorf("no matches for kind %q in group %q", gk.Kind, gk.Group)
	}
	return out, err
}
