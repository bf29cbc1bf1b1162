//go:build defs

// Command emit writes the definitions that openapi-gen made as compressed data, one file a Go package:
// server/openapi/data/<package>.json.gz holds OpenAPI v3 schemas, server/schema/data/<package>.json.gz the
// types of structured-merge-diff.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa.dev/internal/gen/defs"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "emit:", err)
		os.Exit(1)
	}
}

func run(server string) error {
	schemas, err := build()
	if err != nil {
		return err
	}
	types, err := schemaconv.ToSchemaFromOpenAPI(schemas, false)
	if err != nil {
		return err
	}
	byPackage := map[string]map[string]*spec.Schema{}
	for name, s := range schemas {
		put(byPackage, name, s)
	}
	if err := write(filepath.Join(server, "openapi", "data"), byPackage); err != nil {
		return err
	}
	typesByPackage := map[string]map[string]*atom{}
	for _, t := range types.Types {
		put(typesByPackage, t.Name, wireAtom(t.Atom))
	}
	return write(filepath.Join(server, "schema", "data"), typesByPackage)
}

// build resolves all definitions and sets group, version and kind of each top-level kind.
func build() (map[string]*spec.Schema, error) {
	kinds := kindsByName()
	config := &common.OpenAPIV3Config{
		GetDefinitions: defs.GetOpenAPIDefinitions,
		GetDefinitionName: func(name string) (string, spec.Extensions) {
			if list, ok := kinds[name]; ok {
				return name, spec.Extensions{"x-kubernetes-group-version-kind": list}
			}
			return name, nil
		},
	}
	all := defs.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
	roots := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return strings.Contains(name, "alpha") // Included only where a served type refers to it.
	})
	return builder3.BuildOpenAPIDefinitionsForResources(config, roots...)
}

// put adds a definition to the package that is the prefix of its name.
func put[T any](m map[string]map[string]T, name string, v T) {
	pkg := "builtin"
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		pkg = name[:i]
	}
	if m[pkg] == nil {
		m[pkg] = map[string]T{}
	}
	m[pkg][name] = v
}

func write[T any](dir string, byPackage map[string]map[string]T) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for pkg, m := range byPackage {
		data, err := json.Marshal(m)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(data); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, pkg+".json.gz"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
