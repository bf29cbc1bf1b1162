// Package servedresources chooses from the resources that a server serves: those that controllers of every resource act on, and
// those of a kind.
package servedresources

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// EmptiedVerbs are the verbs that a resource must have for its objects to be deleted with their namespace.
func EmptiedVerbs() []string { return []string{"deletecollection", "list"} }

// CountedVerbs are the verbs that a resource must have to be counted in a quota.
func CountedVerbs() []string { return []string{"create", "list", "delete"} }

// Namespaced returns those stored resources that are namespaced and have all of some verbs, each once.
func Namespaced(defs []*kind.Def, verbs []string) (out []schema.GroupResource) {
	seen := map[schema.GroupResource]bool{}
	for _, d := range defs {
		on := d.Resource()
		if d.Hub != nil || d.Scope != kind.Namespaced || seen[on] ||
			slices.ContainsFunc(verbs, func(v string) bool { return !d.Serves(v) }) {
			continue
		}
		seen[on] = true
		out = append(out, on)
	}
	return out
}

// Scalable returns the resource of a kind, and whether it has the subresource scale.
func Scalable(defs []*kind.Def, gvk schema.GroupVersionKind) (on schema.GroupResource, scales bool, err error) {
	for _, d := range defs {
		if d.GroupVersionKind == gvk {
			return d.Storage().Resource(), d.Sub("scale") != nil, nil
		}
	}
	return on, false, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
}

// OfKind returns the resources of a kind, whatever their version.
func OfKind(defs []*kind.Def, gk schema.GroupKind) (out []schema.GroupResource, err error) {
	for _, d := range defs {
		if on := d.Resource(); d.GroupVersionKind.GroupKind() == gk && d.Hub == nil && !slices.Contains(out, on) {
			out = append(out, on)
		}
	}
	if out == nil {
		err = fmt.Errorf("no matches for kind %q in group %q", gk.Kind, gk.Group)
	}
	return out, err
}

// OfKindAnywhere returns the resources of a kind of this server, or else that of aggregated ones.
func OfKindAnywhere(own, aggregated []*kind.Def, gk schema.GroupKind) ([]schema.GroupResource, error) {
	out, err := OfKind(own, gk)
	if err == nil {
		return out, nil
	}
	for _, d := range aggregated {
		if d.GroupVersionKind.GroupKind() == gk {
			return []schema.GroupResource{d.Resource()}, nil
		}
	}
	return nil, err
}
