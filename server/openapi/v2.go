package openapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

const refPrefixV2 = "#/definitions/"

// swagger writes the v2 document.
type swagger struct {
	builder *builder
	w       writer
	params  object            // parameters that operations refer to by name
	refs    map[string]object // references by parameter, so that each is hashed once
	written map[string]bool   // paths
}

// contents is what the v2 document is made of: the routes of all built-in groups, custom resources, and parts of
// aggregated servers' documents.
type contents struct {
	routes     []route
	customs    []Custom
	aggregated []*aggregatedPart
}

// writeV2 writes the document.
func writeV2(b *builder, w writer, c contents, info string) error {
	routes, customs := c.routes, c.customs
	used := definitionsOf(routes)
	if len(customs) > 0 {
		maps.Copy(used, customBase(customs))
	}
	all, err := b.defs.closure(used)
	if err != nil {
		return err
	}
	taken := names{}
	for _, name := range all {
		taken[name] = true
	}
	s := &swagger{builder: b, w: w, params: object{}, refs: map[string]object{}, written: map[string]bool{}}
	builtin := maps.Clone(taken)
	kinds := claimNames(customs, taken)
	var others *aggregatedPart
	for _, write := range []func() error{
		s.writeHead(info),
		func() error { return s.writePaths(routes, kinds) },
		func() error {
			others = s.merge(c.aggregated, s.ownDefinition(builtin, taken))
			return writeAll(w, "paths", others.paths)
		},
		func() error { return s.writeDefinitions(all, kinds) },
		func() error { return writeAll(w, "definitions", others.definitions) },
		func() error {
			for name, p := range others.parameters {
				if s.params[name] == nil {
					s.params[name] = p
				}
			}
			return w.part(s.params, "parameters")
		},
		w.end,
	} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func (s *swagger) writeHead(info string) func() error {
	return func() error {
		for _, p := range []struct {
			key   string
			value any
		}{
			{"swagger", "2.0"}, {"info", object{"title": "Kubernetes", "version": info}},
			{"securityDefinitions", object{"BearerToken": bearerToken()}}, {"security", []object{{"BearerToken": []string{}}}},
		} {
			if err := s.w.part(p.value, p.key); err != nil {
				return err
			}
		}
		return nil
	}
}

// writePaths writes the paths of the built-in resources, then those of the custom ones.
func (s *swagger) writePaths(routes []route, customs []customKind) error {
	if err := s.writeRoutes(routes); err != nil {
		return err
	}
	for _, c := range customs {
		routes, err := s.builder.customRoutes(c)
		if err != nil {
			return err
		}
		if err := s.writeRoutes(routes); err != nil {
			return err
		}
	}
	return nil
}

func (s *swagger) writeRoutes(routes []route) error {
	paths := byPath(routes)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item, err := s.path(paths[path])
		if err != nil {
			return err
		}
		s.written[path] = true
		if err := s.w.part(item, "paths", path); err != nil {
			return err
		}
	}
	return nil
}

func (s *swagger) writeDefinitions(builtin []string, customs []customKind) error {
	for _, name := range builtin {
		raw, err := s.builder.defs.find(name)
		if err != nil {
			return err
		}
		if raw, err = schemaV2(raw); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := s.w.part(raw, "definitions", name); err != nil {
			return err
		}
	}
	for _, c := range customs {
		if err := c.write(s.w, V2, "definitions"); err != nil {
			return err
		}
	}
	return nil
}

func (s *swagger) path(routes []route) (object, error) {
	shared := commonParams(routes)
	item := object{}
	if len(shared) > 0 {
		params, err := s.parameters(shared)
		if err != nil {
			return nil, err
		}
		item["parameters"] = params
	}
	for _, r := range routes {
		op := operation(r)
		params, err := s.parameters(ownParams(r, shared))
		if err != nil {
			return nil, err
		}
		if r.body != "" {
			body, err := s.body(r)
			if err != nil {
				return nil, err
			}
			params = append([]object{body}, params...)
		}
		if len(params) > 0 {
			op["parameters"] = params
		}
		op["schemes"] = []string{"https"}
		op["produces"] = r.produces
		if len(r.consumes) > 0 {
			op["consumes"] = r.consumes
		}
		responses := object{"401": object{"description": "Unauthorized"}}
		for code, def := range r.results {
			schema := object{"type": "string"}
			if def != "" {
				schema = object{"$ref": refPrefixV2 + def}
			}
			responses[code] = object{"description": statusText(code), "schema": schema}
		}
		op["responses"] = responses
		item[r.method] = op
	}
	return item, nil
}

// parameters returns query and path parameters: in full where the text is particular to the operation or old clients
// look for them there, otherwise as references.
func (s *swagger) parameters(params []param) ([]object, error) {
	var out []object
	for _, p := range params {
		full := object{"in": p.in, "name": p.name, "type": p.typ, "uniqueItems": true}
		if p.description != "" {
			full["description"] = p.description
		}
		if p.in == "path" {
			full["required"] = true
		}
		if p.name == "name" || (p.in == "query" && (p.name == "fieldValidation" || p.name == "dryRun")) {
			out = append(out, full)
			continue
		}
		ref, err := s.reference(full, canonical{
			UniqueItems: true, Type: p.typ, Description: p.description, Name: p.name, In: p.in, Required: p.in == "path",
		})
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	return out, nil
}

func (s *swagger) body(r route) (object, error) {
	full := object{"in": "body", "name": "body", "schema": object{"$ref": refPrefixV2 + r.body}}
	if r.bodyRequired {
		full["required"] = true
	}
	if !strings.HasPrefix(r.body, "io.k8s.apimachinery") {
		return full, nil
	}
	return s.reference(full, canonical{Name: "body", In: "body", Required: r.bodyRequired, Schema: full["schema"]})
}

// canonical is a parameter with its fields in the order in which it is hashed.
type canonical struct {
	UniqueItems bool   `json:"uniqueItems,omitempty"`
	Type        string `json:"type,omitempty"`
	Description string `json:"description,omitempty"`
	Name        string `json:"name,omitempty"`
	In          string `json:"in,omitempty"`
	Required    bool   `json:"required,omitempty"`
	Schema      any    `json:"schema,omitempty"`
}

// reference registers a parameter under its name and the hash of its canonical form, and returns a reference to it.
func (s *swagger) reference(full object, p canonical) (object, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("openapi: encode parameter %s: %w", p.Name, err)
	}
	if ref, ok := s.refs[string(raw)]; ok {
		return ref, nil
	}
	h := fnv.New64()
	h.Write(raw)
	name := p.Name + "-" + base64.URLEncoding.EncodeToString(h.Sum(nil)[:6])
	s.params[name] = full
	ref := object{"$ref": "#/parameters/" + name}
	s.refs[string(raw)] = ref
	return ref, nil
}

// schemaV2 converts a v3 schema to v2, as far as v2 can express it.
func schemaV2(raw json.RawMessage) (json.RawMessage, error) {
	var schema any
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, fmt.Errorf("openapi: decode a schema: %w", err)
	}
	if top, ok := schema.(object); ok {
		lowerSchema(top)
	}
	return encode(schema)
}

// lowerSchema converts a schema in place: references point to definitions, a single allOf becomes its reference,
// defaults and alternatives are dropped. It descends only where a schema can hold schemas, because a property may well
// be called "default".
func lowerSchema(s object) {
	delete(s, "default")
	delete(s, "nullable")
	if ref, ok := s["$ref"].(string); ok {
		s["$ref"] = refPrefixV2 + strings.TrimPrefix(ref, refPrefix)
	}
	if _, ok := s["oneOf"]; ok {
		delete(s, "oneOf")
		s["type"] = "string"
	}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if sub, ok := s[key].(object); ok {
			lowerSchema(sub)
		}
	}
	if props, ok := s["properties"].(object); ok {
		for _, p := range props {
			if sub, ok := p.(object); ok {
				lowerSchema(sub)
			}
		}
	}
	all, ok := s["allOf"].([]any)
	if !ok {
		return
	}
	for _, a := range all {
		if sub, ok := a.(object); ok {
			lowerSchema(sub)
		}
	}
	if first, ok := all[0].(object); ok && len(all) == 1 && len(first) == 1 {
		delete(s, "allOf")
		for k, v := range first {
			s[k] = v
		}
	}
}
