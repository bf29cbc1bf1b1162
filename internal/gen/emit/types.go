//go:build defs

package main

import (
	"cmp"
	"fmt"
	"slices"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// The wire form of structured-merge-diff types. The library's own structs cannot be JSON: a list and a
// map are embedded side by side, and encoding/json drops the fields they have in common. server/schema
// reads this form back; keep both in step.
type (
	ref struct {
		Name     string `json:"n,omitempty"`
		Inline   *atom  `json:"a,omitempty"`
		Relation string `json:"r,omitempty"`
		Nullable bool   `json:"x,omitempty"`
	}
	atom struct {
		Scalar string   `json:"s,omitempty"`
		List   *list    `json:"l,omitempty"`
		Map    *mapping `json:"m,omitempty"`
	}
	list struct {
		Element  ref      `json:"e,omitzero"`
		Relation string   `json:"r,omitempty"`
		Keys     []string `json:"k,omitempty"`
	}
	mapping struct {
		Fields   []field `json:"f,omitempty"`
		Element  ref     `json:"e,omitzero"`
		Relation string  `json:"r,omitempty"`
	}
	field struct {
		Name    string `json:"n"`
		Type    ref    `json:"t"`
		Default any    `json:"d,omitempty"`
	}
)

func wireAtom(a smd.Atom) *atom {
	out := &atom{}
	if a.Scalar != nil {
		out.Scalar = string(*a.Scalar)
	}
	if l := a.List; l != nil {
		out.List = &list{Element: wireRef(l.ElementType), Relation: string(l.ElementRelationship), Keys: l.Keys}
	}
	if m := a.Map; m != nil {
		if len(m.Unions) > 0 {
			panic(fmt.Sprintf("unions have no wire form: %v", m.Unions))
		}
		out.Map = &mapping{Element: wireRef(m.ElementType), Relation: string(m.ElementRelationship)}
		for _, f := range m.Fields {
			out.Map.Fields = append(out.Map.Fields, field{Name: f.Name, Type: wireRef(f.Type), Default: f.Default})
		}
		slices.SortFunc(out.Map.Fields, func(a, b field) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

func wireRef(r smd.TypeRef) ref {
	out := ref{Nullable: r.Nullable}
	if r.ElementRelationship != nil {
		out.Relation = string(*r.ElementRelationship)
	}
	if r.NamedType != nil {
		out.Name = *r.NamedType
		return out
	}
	if in := r.Inlined; in.Scalar != nil || in.List != nil || in.Map != nil {
		out.Inline = wireAtom(in)
	}
	return out
}
