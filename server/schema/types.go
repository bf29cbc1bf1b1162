package schema

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"weak"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"proa.dev/server/packagedata"
)

//go:embed data/*.json.gz
var data embed.FS

// The wire form that internal/gen writes. Both must match.
type (
	wireRef struct {
		Name     string                   `json:"n"`
		Inline   *wireAtom                `json:"a"`
		Relation *smd.ElementRelationship `json:"r"`
		Nullable bool                     `json:"x"`
	}
	wireAtom struct {
		Scalar smd.Scalar `json:"s"`
		List   *wireList  `json:"l"`
		Map    *wireMap   `json:"m"`
	}
	wireList struct {
		Element  wireRef                 `json:"e"`
		Relation smd.ElementRelationship `json:"r"`
		Keys     []string                `json:"k"`
	}
	wireMap struct {
		Fields   []wireField             `json:"f"`
		Element  wireRef                 `json:"e"`
		Relation smd.ElementRelationship `json:"r"`
	}
	wireField struct {
		Name    string  `json:"n"`
		Type    wireRef `json:"t"`
		Default any     `json:"d"`
	}
)

// types reads the embedded definitions on demand. Only what a written kind needs is decoded and kept.
type types struct {
	mu    sync.Mutex // guards all maps
	atoms map[string]smd.Atom
	kinds map[string]*typed.ParseableType
	plans map[planID]*plan
	// read has the packages that were read last. Kinds of one package are often written one after the other, as when a
	// server starts; the next garbage collection frees them.
	read weak.Pointer[packages]
}

func newTypes() *types {
	return &types{atoms: map[string]smd.Atom{}, kinds: map[string]*typed.ParseableType{}, plans: map[planID]*plan{}}
}

// plan returns the plan of a kind's Go type.
func (t *types) plan(goType reflect.Type, kind *typed.ParseableType) *plan {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := planner{schema: kind.Schema, made: t.plans}
	return p.plan(goType, kind.TypeRef)
}

// kind returns the type with that definition name, with a schema that contains everything that it refers to. It returns
// nil when there is none.
func (t *types) kind(name string) (*typed.ParseableType, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.kinds[name]; ok {
		return p, nil
	}
	s := &smd.Schema{}
	seen := map[string]bool{}
	open := t.read.Value()
	if open == nil {
		open = &packages{}
		t.read = weak.Make(open)
	}
	for todo := []string{name}; len(todo) > 0; {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[next] {
			continue
		}
		seen[next] = true
		atom, err := t.atom(*open, next)
		if err != nil {
			return nil, err
		}
		if atom == nil {
			if next == name {
				return nil, nil
			}
			return nil, fmt.Errorf("schema data: %s is not defined", next)
		}
		s.Types = append(s.Types, smd.TypeDef{Name: next, Atom: *atom})
		todo = appendNames(todo, *atom)
	}
	p := &typed.ParseableType{Schema: s, TypeRef: smd.TypeRef{NamedType: &name}}
	t.kinds[name] = p
	return p, nil
}

func (t *types) atom(open packages, name string) (*smd.Atom, error) {
	if a, ok := t.atoms[name]; ok {
		return &a, nil
	}
	raw, err := open.find(name)
	if err != nil || raw == nil {
		return nil, err
	}
	var w wireAtom
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&w); err != nil {
		return nil, fmt.Errorf("schema data: decode %s: %w", name, err)
	}
	a := w.atom()
	t.atoms[name] = a
	return &a, nil
}

// packages holds the definitions of some Go packages, not decoded, by package and name.
type packages map[string]map[string]json.RawMessage

// find returns the definition of a name, or nil when there is none.
func (p packages) find(name string) (json.RawMessage, error) {
	pkg := "builtin"
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		pkg = name[:i]
	}
	if p[pkg] == nil {
		m, err := packagedata.Read(data, pkg)
		if err != nil {
			return nil, err
		}
		p[pkg] = m
	}
	return p[pkg][name], nil
}

func (w *wireAtom) atom() smd.Atom {
	var a smd.Atom
	if w.Scalar != "" {
		a.Scalar = new(w.Scalar)
	}
	if l := w.List; l != nil {
		a.List = &smd.List{ElementType: l.Element.ref(), ElementRelationship: l.Relation, Keys: l.Keys}
	}
	if m := w.Map; m != nil {
		a.Map = &smd.Map{ElementType: m.Element.ref(), ElementRelationship: m.Relation}
		for _, f := range m.Fields {
			a.Map.Fields = append(a.Map.Fields, smd.StructField{Name: f.Name, Type: f.Type.ref(), Default: numberValue(f.Default)})
		}
	}
	return a
}

func (w *wireRef) ref() smd.TypeRef {
	r := smd.TypeRef{ElementRelationship: w.Relation, Nullable: w.Nullable}
	if w.Name != "" {
		r.NamedType = new(w.Name)
	}
	if w.Inline != nil {
		r.Inlined = w.Inline.atom()
	}
	return r
}

// numberValue converts a decoded number to the type that numbers of objects have.
func numberValue(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		return nil
	}
	return f
}

// appendNames appends the names that an atom refers to.
func appendNames(names []string, a smd.Atom) []string {
	ref := func(r smd.TypeRef) {
		if r.NamedType != nil {
			names = append(names, *r.NamedType)
			return
		}
		names = appendNames(names, r.Inlined)
	}
	if a.List != nil {
		ref(a.List.ElementType)
	}
	if a.Map != nil {
		for _, f := range a.Map.Fields {
			ref(f.Type)
		}
		ref(a.Map.ElementType)
	}
	return names
}
