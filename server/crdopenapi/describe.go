// Package crdopenapi makes the OpenAPI descriptions of custom resources from their definitions, as upstream publishes
// them.
//
// It caches nothing: a description is a few closures over a definition, and a schema is made when a document is built.
package crdopenapi

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

// Source is a definition to describe. Both fields are shared and read-only.
type Source struct {
	// Outline need not have schemas.
	Outline *Definition
	// Whole returns the same definition with its schemas.
	Whole func() *Definition
}

// Groups returns the group versions of custom resources in a stable order, without definitions that are not
// established, and without versions that are not served.
func Groups(definitions []Source) []openapi.Group {
	members := map[schema.GroupVersion][]Source{}
	for _, s := range definitions {
		d := s.Outline
		if !isEstablished(d) {
			continue
		}
		for i := range d.Spec.Versions {
			if v := &d.Spec.Versions[i]; v.Served {
				gv := schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}
				members[gv] = append(members[gv], s)
			}
		}
	}
	out := make([]openapi.Group, 0, len(members))
	for gv, of := range members {
		slices.SortFunc(of, func(a, b Source) int { return cmp.Compare(a.Outline.Name, b.Outline.Name) })
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

// tag returns a text that changes with the set of definitions and with the spec of each of them.
func tag(definitions []Source) string {
	var b strings.Builder
	for _, d := range definitions {
		fmt.Fprintf(&b, "%s,%d;", d.Outline.UID, d.Outline.Generation)
	}
	return b.String()
}

// custom describes one version of a custom resource.
func custom(s Source, version string) openapi.Custom {
	d, v := s.Outline, find(s.Outline, version)
	out := openapi.Custom{
		Group: d.Spec.Group, Version: version, Kind: d.Spec.Names.Kind, ListKind: d.Spec.Names.ListKind, Plural: d.Spec.Names.Plural,
		Namespaced: d.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Schema:     func(dialect openapi.Dialect) json.RawMessage { return objectSchema(s.Whole(), version, dialect) },
		List:       func(dialect openapi.Dialect, object string) json.RawMessage { return listSchema(d, v, dialect, object) },
	}
	if s := v.Subresources; s != nil {
		out.Status, out.Scale = s.Status != nil, s.Scale != nil
	}
	return out
}

// find returns a version of a definition. The definition must have it.
func find(d *Definition, name string) *version {
	return &d.Spec.Versions[slices.IndexFunc(d.Spec.Versions, func(v version) bool { return v.Name == name })]
}
