package openapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"proa.dev/server/packagedata"
)

//go:embed data/*.json.gz
var data embed.FS

// definitions finds the schemas of built-in types by name. It lives only while one document is built, so that the
// uncompressed schemas do not stay in memory.
type definitions struct {
	packages map[string]map[string]json.RawMessage
	options  map[string][]param
}

func newDefinitions() *definitions {
	return &definitions{packages: map[string]map[string]json.RawMessage{}, options: map[string][]param{}}
}

// find returns the v3 schema with that name.
func (d *definitions) find(name string) (json.RawMessage, error) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return nil, fmt.Errorf("openapi: %q is no definition", name)
	}
	pkg := name[:i]
	if d.packages[pkg] == nil {
		m, err := packagedata.Read(data, pkg)
		if err != nil {
			return nil, err
		}
		d.packages[pkg] = m
	}
	raw, ok := d.packages[pkg][name]
	if !ok {
		return nil, fmt.Errorf("openapi: %s is not defined", name)
	}
	return raw, nil
}

const refPrefix = "#/components/schemas/"

// closure returns the names and everything that they refer to, sorted.
func (d *definitions) closure(names map[string]bool) ([]string, error) {
	seen := map[string]bool{}
	for todo := slices.Collect(maps.Keys(names)); len(todo) > 0; {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[name] {
			continue
		}
		seen[name] = true
		raw, err := d.find(name)
		if err != nil {
			return nil, err
		}
		for rest := raw; ; {
			i := bytes.Index(rest, []byte(`"`+refPrefix))
			if i < 0 {
				break
			}
			rest = rest[i+1+len(refPrefix):]
			ref, _, _ := bytes.Cut(rest, []byte{'"'})
			todo = append(todo, string(ref))
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// params returns the fields of an options type as query parameters.
func (d *definitions) params(name string) ([]param, error) {
	if p, ok := d.options[name]; ok {
		return p, nil
	}
	raw, err := d.find(name)
	if err != nil {
		return nil, err
	}
	type property struct {
		Type, Description string
		Items             struct{ Type string }
	}
	var schema struct{ Properties map[string]property }
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, fmt.Errorf("openapi: decode %s: %w", name, err)
	}
	var out []param
	for field, p := range schema.Properties {
		typ := p.Type
		if typ == "array" {
			typ = p.Items.Type
		}
		if field == "kind" || field == "apiVersion" || !slices.Contains([]string{"string", "integer", "boolean"}, typ) {
			continue
		}
		text, _, _ := strings.Cut(p.Description, "\n\nPossible enum values:")
		out = append(out, param{field, "query", typ, text})
	}
	sortParams(out)
	d.options[name] = out
	return out, nil
}
