package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// object is a JSON object under construction.
type object = map[string]any

// document is one v3 document: the routes of a group version or of a root path.
type document struct {
	group, version string // empty for root documents
	routes         []route
}

// v3 writes the document with all schemas that its routes refer to.
func (d document) v3(defs *definitions, info string) ([]byte, error) {
	names := map[string]bool{}
	paths := object{}
	for path, routes := range byPath(d.routes) {
		paths[path] = pathV3(routes, names)
	}
	all, err := defs.closure(names)
	if err != nil {
		return nil, err
	}
	schemas := map[string]json.RawMessage{}
	for _, name := range all {
		raw, err := defs.find(name)
		if err != nil {
			return nil, err
		}
		if name == metaV1+"DeleteOptions" || name == metaV1+"WatchEvent" {
			if raw, err = d.ownKinds(raw); err != nil {
				return nil, err
			}
		}
		schemas[name] = raw
	}
	components := object{"securitySchemes": object{"BearerToken": bearerToken()}}
	if len(schemas) > 0 {
		components["schemas"] = schemas
	}
	return encode(object{
		"components": components, "openapi": "3.0.0", "paths": paths,
		"info": object{"title": "Kubernetes", "version": info},
	})
}

// ownKinds reduces the group version kinds of a type that every group has to those of this document.
func (d document) ownKinds(raw json.RawMessage) (json.RawMessage, error) {
	const key = "x-kubernetes-group-version-kind"
	schema := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, fmt.Errorf("openapi: decode a common type: %w", err)
	}
	var kinds []kind
	if err := json.Unmarshal(schema[key], &kinds); err != nil {
		return nil, fmt.Errorf("openapi: decode the kinds of a common type: %w", err)
	}
	name := kinds[0].Kind
	kinds = slices.DeleteFunc(kinds, func(k kind) bool {
		return !(k.Group == "" && k.Version == "v1") && !(k.Group == d.group && k.Version == d.version)
	})
	if own := (kind{d.group, name, d.version}); d.version != "" && !slices.Contains(kinds, own) {
		kinds = append(kinds, own) // The group of a custom resource.
	}
	var err error
	if schema[key], err = encode(kinds); err != nil {
		return nil, err
	}
	return encode(schema)
}

func bearerToken() object {
	return object{"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}
}

func byPath(routes []route) map[string][]route {
	m := map[string][]route{}
	for _, r := range routes {
		m[r.path] = append(m[r.path], r)
	}
	return m
}

// common returns the parameters that all routes of a path have. They are said once, for the path.
func common(routes []route) []param {
	var out []param
	for _, p := range routes[0].params {
		if !slices.ContainsFunc(routes, func(r route) bool { return !slices.Contains(r.params, p) }) {
			out = append(out, p)
		}
	}
	return out
}

// own returns the parameters of a route that its path has not said yet.
func own(r route, common []param) []param {
	return slices.DeleteFunc(slices.Clone(r.params), func(p param) bool { return slices.Contains(common, p) })
}

func pathV3(routes []route, names map[string]bool) object {
	shared := common(routes)
	item := object{}
	if len(shared) > 0 {
		item["parameters"] = paramsV3(shared)
	}
	for _, r := range routes {
		op := operation(r)
		if params := own(r, shared); len(params) > 0 {
			op["parameters"] = paramsV3(params)
		}
		if r.body != "" {
			body := object{"content": contentV3(r.consumes, r.body, names)}
			if r.bodyRequired {
				body["required"] = true
			}
			op["requestBody"] = body
		}
		responses := object{"401": object{"description": "Unauthorized"}}
		for code, def := range r.results {
			responses[code] = object{"description": statusText(code), "content": contentV3(r.produces, def, names)}
		}
		op["responses"] = responses
		item[r.method] = op
	}
	return item
}

// operation says what both versions say in the same words.
func operation(r route) object {
	op := object{"operationId": r.id, "tags": []string{r.tag}}
	if r.description != "" {
		op["description"] = r.description
	}
	if r.action != "" {
		op["x-kubernetes-action"] = r.action
	}
	if r.kind != nil {
		op["x-kubernetes-group-version-kind"] = r.kind
	}
	return op
}

func statusText(code string) string {
	switch code {
	case "201":
		return "Created"
	case "202":
		return "Accepted"
	}
	return "OK"
}

func paramsV3(params []param) []object {
	var out []object
	for _, p := range params {
		o := object{"in": p.in, "name": p.name, "schema": object{"type": p.typ, "uniqueItems": true}}
		if p.description != "" {
			o["description"] = p.description
		}
		if p.in == "path" {
			o["required"] = true
		}
		out = append(out, o)
	}
	return out
}

func contentV3(media []string, def string, names map[string]bool) object {
	schema := object{"type": "string"}
	if def != "" {
		names[def] = true
		schema = object{"$ref": refPrefix + def}
	}
	content := object{}
	for _, m := range media {
		content[m] = object{"schema": schema}
	}
	return content
}

// encode is json.Marshal without the escaping of HTML, which only makes the documents longer.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("openapi: encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
