package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// object is a JSON object under construction.
type object = map[string]any

// document is one v3 document: of a group version, or of a root path.
type document struct {
	group, version string // empty for root documents
	info           object
	routes         []route  // of built-in resources
	customs        []Custom // custom resources of the group version
}

// write writes the document with all schemas that its routes refer to.
func (d document) write(b *builder, w writer) error {
	used := definitionsOf(d.routes)
	if len(d.customs) > 0 {
		maps.Copy(used, customBase(d.customs))
	}
	all, err := b.defs.closure(used)
	if err != nil {
		return err
	}
	taken := names{}
	for _, name := range all {
		taken[name] = true
	}
	customs := claimNames(d.customs, taken)
	if err := w.part("3.0.0", "openapi"); err != nil {
		return err
	}
	if err := w.part(d.info, "info"); err != nil {
		return err
	}
	if err := d.writeSchemas(b.defs, w, all, customs); err != nil {
		return err
	}
	if err := writePathsV3(w, d.routes); err != nil {
		return err
	}
	for _, c := range customs {
		routes, err := b.customRoutes(c)
		if err != nil {
			return err
		}
		if err := writePathsV3(w, routes); err != nil {
			return err
		}
	}
	return w.end()
}

func (d document) writeSchemas(defs *definitions, w writer, names []string, customs []customKind) error {
	if len(d.routes) > 0 {
		if err := w.part(bearerToken(), "components", "securitySchemes", "BearerToken"); err != nil {
			return err
		}
	}
	for _, name := range names {
		raw, err := defs.find(name)
		if err != nil {
			return err
		}
		if name == metaV1+"DeleteOptions" || name == metaV1+"WatchEvent" {
			if raw, err = d.limitKinds(raw); err != nil {
				return err
			}
		}
		if err := w.part(raw, "components", "schemas", name); err != nil {
			return err
		}
	}
	for _, c := range customs {
		if err := c.write(w, V3, "components", "schemas"); err != nil {
			return err
		}
	}
	return nil
}

func writePathsV3(w writer, routes []route) error {
	paths := byPath(routes)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if err := w.part(pathV3(paths[path]), "paths", path); err != nil {
			return err
		}
	}
	return nil
}

// definitionsOf returns the names of the definitions that routes refer to.
func definitionsOf(routes []route) map[string]bool {
	out := map[string]bool{}
	for _, r := range routes {
		out[r.body] = true
		for _, def := range r.results {
			out[def] = true
		}
	}
	delete(out, "")
	return out
}

// limitKinds reduces the list of group version kinds of a type that every group has to those of this document. A
// document of custom resources alone lists all groups that clients of Kubernetes know.
func (d document) limitKinds(raw json.RawMessage) (json.RawMessage, error) {
	const key = "x-kubernetes-group-version-kind"
	schema := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, fmt.Errorf("openapi: decode a common type: %w", err)
	}
	var kinds []kind
	if err := json.Unmarshal(schema[key], &kinds); err != nil {
		return nil, fmt.Errorf("openapi: decode the kinds of a common type: %w", err)
	}
	kinds = slices.DeleteFunc(kinds, func(k kind) bool {
		if len(d.routes) == 0 {
			return slices.Contains([]string{"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"},
				k.Group)
		}
		return !(k.Group == "" && k.Version == "v1") && !(k.Group == d.group && k.Version == d.version)
	})
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

// commonParams returns the parameters that all routes of a path have. They are written once, for the path.
func commonParams(routes []route) []param {
	var out []param
	for _, p := range routes[0].params {
		if !slices.ContainsFunc(routes, func(r route) bool { return !slices.Contains(r.params, p) }) {
			out = append(out, p)
		}
	}
	return out
}

// ownParams returns the parameters of a route without those of its path.
func ownParams(r route, common []param) []param {
	return slices.DeleteFunc(slices.Clone(r.params), func(p param) bool { return slices.Contains(common, p) })
}

func pathV3(routes []route) object {
	shared := commonParams(routes)
	item := object{}
	if len(shared) > 0 {
		item["parameters"] = paramsV3(shared)
	}
	for _, r := range routes {
		op := operation(r)
		if params := ownParams(r, shared); len(params) > 0 {
			op["parameters"] = paramsV3(params)
		}
		if r.body != "" {
			body := object{"content": contentV3(r.consumes, r.body)}
			if r.bodyRequired {
				body["required"] = true
			}
			op["requestBody"] = body
		}
		responses := object{"401": object{"description": "Unauthorized"}}
		for code, def := range r.results {
			responses[code] = object{"description": statusText(code), "content": contentV3(r.produces, def)}
		}
		op["responses"] = responses
		item[r.method] = op
	}
	return item
}

// operation returns the fields that an operation has in both versions of OpenAPI.
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

func contentV3(media []string, def string) object {
	schema := object{"type": "string"}
	if def != "" {
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
