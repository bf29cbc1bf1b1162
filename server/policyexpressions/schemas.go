package policyexpressions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa.dev/kinds/kind"
)

// Published returns the types that clients see: kinds by discovery, and their schemas by OpenAPI. defs lists the
// resources that are served now, including custom ones, and docs serves the OpenAPI v3 documents. Each document is read
// at most once, when a schema is needed, and only the result refers to it.
func Published(defs func() []*kind.Def, docs http.Handler) Types {
	read := map[schema.GroupVersion]document{}
	return Types{
		Kinds: func(r schema.GroupVersionResource) []schema.GroupVersionKind { return kindsOfResource(defs(), r) },
		Schema: func(ctx context.Context, k schema.GroupVersionKind) (*spec.Schema, error) {
			d, ok := read[k.GroupVersion()]
			if !ok {
				var err error
				if d, err = fetchDocument(ctx, docs, k.GroupVersion()); err != nil {
					return nil, fmt.Errorf("schemas of %s: %w", k.GroupVersion(), err)
				}
				read[k.GroupVersion()] = d
			}
			return d.find(k)
		},
	}
}

// kindsOfResource returns the kinds of a resource, which may be named in any case and in the singular. The core group
// stands for every group, as where kubectl resolves a name.
func kindsOfResource(defs []*kind.Def, r schema.GroupVersionResource) (out []schema.GroupVersionKind) {
	name := strings.ToLower(r.Resource)
	for _, d := range defs {
		if (r.Group == "" || r.Group == d.Group) && r.Version == d.Version && (name == d.Plural || name == d.Singular) {
			out = append(out, d.GroupVersionKind)
		}
	}
	return out
}

// document holds the schemas of a group version by their names.
type document map[string]json.RawMessage

// fetchDocument reads a document; nil if there is none.
func fetchDocument(ctx context.Context, docs http.Handler, gv schema.GroupVersion) (document, error) {
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	w := &responseBuffer{header: http.Header{}, code: http.StatusOK}
	docs.ServeHTTP(w, req)
	switch {
	case w.code == http.StatusNotFound:
		return nil, nil
	case w.code != http.StatusOK:
		return nil, fmt.Errorf("%s answers %d", path, w.code)
	}
	var d struct {
		Components struct{ Schemas document }
	}
	err = json.Unmarshal(w.body.Bytes(), &d)
	return d.Components.Schemas, err
}

// responseBuffer is an http.ResponseWriter that keeps the response in memory.
type responseBuffer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *responseBuffer) Header() http.Header { return a.header }

func (a *responseBuffer) WriteHeader(code int) { a.code = code }

func (a *responseBuffer) Write(p []byte) (int, error) { return a.body.Write(p) }

// find returns the schema of a kind with all references resolved, or nil.
func (d document) find(k schema.GroupVersionKind) (*spec.Schema, error) {
	for name, raw := range d {
		var is struct {
			Of []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(raw, &is); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		if slices.Contains(is.Of, k) {
			return (&expansion{from: d, read: map[string]*spec.Schema{}}).named(name)
		}
	}
	return nil, nil
}

// expansion replaces references by the schemas that they name. Schemas of the API have references as the values of
// properties, as items and as the values of maps.
type expansion struct {
	from document
	read map[string]*spec.Schema
	open []string // schemas that are being expanded: a schema that contains itself becomes an object without properties
}

// named returns a schema by its name.
func (x *expansion) named(name string) (*spec.Schema, error) {
	if slices.Contains(x.open, name) {
		return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, nil
	}
	if x.read[name] == nil {
		s := &spec.Schema{}
		if err := json.Unmarshal(x.from[name], s); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		x.read[name] = s
	}
	x.open = append(x.open, name)
	defer func() { x.open = x.open[:len(x.open)-1] }()
	return x.expand(x.read[name])
}

// expand returns a copy of a schema without references.
func (x *expansion) expand(s *spec.Schema) (out *spec.Schema, err error) {
	if name := refOf(s); name != "" {
		return x.named(name)
	}
	c := *s
	if len(s.Properties) > 0 {
		c.Properties = make(map[string]spec.Schema, len(s.Properties))
		for name, p := range s.Properties {
			full, err := x.expand(&p)
			if err != nil {
				return nil, err
			}
			c.Properties[name] = *full
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		c.Items = &spec.SchemaOrArray{}
		if c.Items.Schema, err = x.expand(s.Items.Schema); err != nil {
			return nil, err
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		c.AdditionalProperties = &spec.SchemaOrBool{Allows: s.AdditionalProperties.Allows}
		if c.AdditionalProperties.Schema, err = x.expand(s.AdditionalProperties.Schema); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

// refOf returns the name of the schema that a schema refers to, or "". A reference with a description or a default of
// its own is wrapped in an allOf.
func refOf(s *spec.Schema) string {
	if name, ok := strings.CutPrefix(s.Ref.String(), "#/components/schemas/"); ok {
		return name
	}
	for i := range s.AllOf {
		if name := refOf(&s.AllOf[i]); name != "" {
			return name
		}
	}
	return ""
}
