// Package describe makes the OpenAPI descriptions of custom resources out of their definitions, as Kubernetes publishes them.
//
// It keeps nothing: a description is a few closures over a definition, and a schema is made when a document asks for it.
package describe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/server/openapi"
)

// Definition is the definition of a custom resource.
type Definition = apiextensionsv1.CustomResourceDefinition

// Groups returns the group versions of custom resources in a stable order. Definitions that are not established, and versions that are not
// served, have no part in them. The definitions are shared and read-only.
func Groups(definitions []*Definition) []openapi.Group {
	members := map[schema.GroupVersion][]*Definition{}
	for _, d := range definitions {
		if !isEstablished(d) {
			continue
		}
		for i := range d.Spec.Versions {
			if v := &d.Spec.Versions[i]; v.Served {
				gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
				members[gv] = append(members[gv], d)
			}
		}
	}
	out := make([]openapi.Group, 0, len(members))
	for gv, of := range members {
		slices.SortFunc(of, func(a, b *Definition) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, openapi.Group{Group: gv.Group, Version: gv.Version, Tag: tag(of), Custom: func() []openapi.Custom {
			customs := make([]openapi.Custom, 0, len(of))
			for _, d := range of {
				customs = append(customs, custom(d, gv.Version))
			}
			return customs
		}})
	}
	slices.SortFunc(out, func(a, b openapi.Group) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
	})
	return out
}

func isEstablished(d *Definition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

// tag changes with the set of definitions and with the spec of each of them, of which the generation tells.
func tag(definitions []*Definition) string {
	var b strings.Builder
	for _, d := range definitions {
		fmt.Fprintf(&b, "%s,%d;", d.UID, d.Generation)
	}
	return b.String()
}

// custom describes one version of a custom resource.
func custom(d *Definition, version string) openapi.Custom {
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	v := &d.Spec.Versions[i]
	out := openapi.Custom{
		Group: d.Spec.Group, Version: version, Kind: d.Spec.Names.Kind, ListKind: d.Spec.Names.ListKind, Plural: d.Spec.Names.Plural,
		Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Schema:     func(dialect openapi.Dialect) json.RawMessage { return objectSchema(d, v, dialect) },
		List:       func(dialect openapi.Dialect, object string) json.RawMessage { return listSchema(d, v, dialect, object) },
	}
	if s := v.Subresources; s != nil {
		out.Status, out.Scale = s.Status != nil, s.Scale != nil
	}
	return out
}
