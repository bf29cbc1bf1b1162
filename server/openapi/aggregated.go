package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

const paramPrefixV2 = "#/parameters/"

// aggregatedPart is the part of an aggregated server's v2 document that describes its group version: its paths, and
// what they refer to.
type aggregatedPart struct {
	paths, definitions, parameters map[string]any
}

// readAggregated returns the part of an aggregated server's v2 document that describes one group version. Paths of
// other groups are ignored, and references that lead out of the document are removed, so that nobody follows them.
func readAggregated(raw []byte, group, version string) (*aggregatedPart, error) {
	var doc swaggerDocument
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("openapi: decode the document of %s/%s: %w", group, version, err)
	}
	f := &aggregatedPart{paths: object{}, definitions: object{}, parameters: object{}}
	for path, item := range doc.Paths {
		if strings.HasPrefix(path, "/apis/"+group+"/"+version+"/") {
			f.paths[path] = item
			f.collect(item, &doc)
		}
	}
	return f, nil
}

// swaggerDocument is the part of a v2 document that is decoded.
type swaggerDocument struct {
	Paths, Definitions, Parameters map[string]any
}

// collect adds what a value refers to.
func (f *aggregatedPart) collect(v any, doc *swaggerDocument) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			f.collect(e, doc)
		}
	case object:
		if ref, ok := v["$ref"].(string); ok {
			switch name, at, found := f.target(ref, doc); {
			case !found:
				delete(v, "$ref")
			case at[name] == nil:
				from := doc.Definitions
				if strings.HasPrefix(ref, paramPrefixV2) {
					from = doc.Parameters
				}
				at[name] = from[name]
				f.collect(from[name], doc)
			}
		}
		for _, e := range v {
			f.collect(e, doc)
		}
	}
}

// target returns the name in a reference, the map to which its target belongs, and whether the document has it.
func (f *aggregatedPart) target(ref string, doc *swaggerDocument) (name string, at map[string]any, found bool) {
	if name, ok := strings.CutPrefix(ref, refPrefixV2); ok {
		return name, f.definitions, doc.Definitions[name] != nil
	}
	if name, ok := strings.CutPrefix(ref, paramPrefixV2); ok {
		return name, f.parameters, doc.Parameters[name] != nil
	}
	return "", nil, false
}

// rename renames definitions and parameters whose names stand for something else in the document already, as upstream's
// aggregator does: NAME_v2, NAME_v3. have returns what a name stands for, and whether it is taken.
func (f *aggregatedPart) rename(have, haveParam func(name string) (any, bool)) {
	names := renames(f.definitions, have, sameSchema)
	params := renames(f.parameters, haveParam, reflect.DeepEqual)
	if len(names)+len(params) == 0 {
		return
	}
	refs := map[string]string{}
	for was, is := range names {
		refs[refPrefixV2+was] = refPrefixV2 + is
		f.definitions[is] = f.definitions[was]
		delete(f.definitions, was)
	}
	for was, is := range params {
		refs[paramPrefixV2+was] = paramPrefixV2 + is
		f.parameters[is] = f.parameters[was]
		delete(f.parameters, was)
	}
	for _, part := range []map[string]any{f.paths, f.definitions, f.parameters} {
		redirect(part, refs)
	}
}

// renames chooses new names for entries whose names stand for something else.
func renames(own map[string]any, have func(string) (any, bool), same func(a, b any) bool) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		there, taken := have(name)
		if !taken || same(there, own[name]) {
			continue
		}
		for n := 2; ; n++ {
			next := fmt.Sprintf("%s_v%d", name, n)
			_, mine := own[next]
			if other, taken := have(next); !mine && (!taken || same(other, own[name])) {
				out[name] = next
				break
			}
		}
	}
	return out
}

// redirect replaces references.
func redirect(v any, refs map[string]string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			redirect(e, refs)
		}
	case object:
		if ref, ok := v["$ref"].(string); ok && refs[ref] != "" {
			v["$ref"] = refs[ref]
		}
		for _, e := range v {
			redirect(e, refs)
		}
	}
}

// sameSchema reports whether two schemas differ in nothing but the kinds that they are for.
func sameSchema(a, b any) bool {
	const kinds = "x-kubernetes-group-version-kind"
	without := func(v any) any {
		o, ok := v.(object)
		if !ok {
			return v
		}
		o = maps.Clone(o)
		delete(o, kinds)
		return o
	}
	return reflect.DeepEqual(without(a), without(b))
}

// merge combines the parts of all aggregated servers, so that they fit into a document whose own definitions are
// written already: no path, definition or parameter occurs twice with different contents.
func (s *swagger) merge(foreigns []*aggregatedPart, own func(name string) (any, bool)) *aggregatedPart {
	all := &aggregatedPart{paths: object{}, definitions: object{}, parameters: object{}}
	for _, f := range foreigns {
		for path := range f.paths {
			if s.written[path] || all.paths[path] != nil {
				delete(f.paths, path)
			}
		}
		f.rename(func(name string) (any, bool) {
			if d, ok := all.definitions[name]; ok {
				return d, true
			}
			return own(name)
		}, func(name string) (any, bool) {
			if p, ok := all.parameters[name]; ok {
				return p, true
			}
			p, ok := s.params[name]
			return p, ok
		})
		maps.Copy(all.paths, f.paths)
		maps.Copy(all.definitions, f.definitions)
		maps.Copy(all.parameters, f.parameters)
	}
	for name := range all.definitions {
		if _, taken := own(name); taken {
			delete(all.definitions, name) // it has the same contents
		}
	}
	return all
}

// ownDefinition returns a function that finds a definition of this server as it is written; it returns nil, and true,
// for a definition of a custom resource.
func (s *swagger) ownDefinition(builtin, taken names) func(name string) (any, bool) {
	return func(name string) (any, bool) {
		if !builtin[name] {
			return nil, taken[name]
		}
		raw, err := s.builder.defs.find(name)
		if err == nil {
			raw, err = schemaV2(raw)
		}
		var v any
		if err == nil {
			err = json.Unmarshal(raw, &v)
		}
		if err != nil {
			return nil, true
		}
		return v, true
	}
}

// writeAll writes values under one key, sorted by name.
func writeAll(w writer, key string, values map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := w.part(values[name], key, name); err != nil {
			return err
		}
	}
	return nil
}
