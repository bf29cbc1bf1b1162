package crdopenapi

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"proa.dev/server/openapi"
)

// readDefinitions reads the definitions of testdata, all of them established.
func readDefinitions(t testing.TB) (out []*Definition) {
	t.Helper()
	raw, err := os.ReadFile("testdata/corpus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(raw), "\n---\n") {
		d := &Definition{}
		if err := yaml.UnmarshalStrict([]byte(part), d); err != nil {
			t.Fatal(err)
		}
		out = append(out, established(d))
	}
	return out
}

func established(d *Definition) *Definition {
	d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
		Status: apiextensionsv1.ConditionTrue}}
	return d
}

// get requests a document from a service that publishes the definitions.
func get(t testing.TB, definitions []*Definition, path string) object {
	t.Helper()
	s := openapi.New(openapi.Options{Groups: func() []openapi.Group { return Groups(sources(definitions)) }})
	w := httptest.NewRecorder()
	s.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	if w.Code != 200 {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	out := object{}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

type object = map[string]any

func toPlainObject(t testing.TB, v any) object {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out := object{}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sub returns an object within an object.
func sub(o object, keys ...string) object {
	for _, k := range keys {
		o, _ = o[k].(object)
	}
	return o
}

// compare checks that every entry of want is in got, and that got has no further entries about custom resources.
func compare(t *testing.T, what string, got, want object, ours func(string) bool) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(got[name], want[name]) {
			g, _ := json.Marshal(got[name])
			w, _ := json.Marshal(want[name])
			t.Errorf("%s %s:\n got %s\nwant %s", what, name, g, w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && ours(name) {
			t.Errorf("%s %s is not published by Kubernetes", what, name)
		}
	}
}

// withoutDefaults removes the defaults of a schema, as upstream does before it publishes v2.
func withoutDefaults(schema any) {
	s, ok := schema.(object)
	if !ok {
		return
	}
	delete(s, "default")
	withoutDefaults(s["items"])
	withoutDefaults(s["additionalProperties"])
	for _, p := range sub(s, "properties") {
		withoutDefaults(p)
	}
}

func anyName(string) bool { return true }

// TestV3MatchesUpstream compares the documents of a group version with those of upstream's builder.
func TestV3MatchesUpstream(t *testing.T) {
	definitions := readDefinitions(t)
	groups := Groups(sources(definitions))
	if len(groups) != 8 {
		t.Errorf("there are %d group versions", len(groups))
	}
	for _, g := range groups {
		var parts []*spec3.OpenAPI
		for _, d := range definitions {
			for _, v := range d.Spec.Versions {
				if d.Spec.Group != g.Group || v.Name != g.Version || !v.Served {
					continue
				}
				part, err := builder.BuildOpenAPIV3(d, v.Name, builder.Options{IncludeSelectableFields: true})
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, part)
			}
		}
		merged, err := builder.MergeSpecsV3(parts...)
		if err != nil {
			t.Fatal(err)
		}
		want, got := toPlainObject(t, merged), get(t, definitions, "/openapi/v3/apis/"+g.Group+"/"+g.Version)
		name := g.Group + "/" + g.Version
		compare(t, name+" path", sub(got, "paths"), sub(want, "paths"), anyName)
		compare(t, name+" schema", sub(got, "components", "schemas"), sub(want, "components", "schemas"), anyName)
		for _, o := range []object{got, want} {
			delete(o, "paths")
			delete(sub(o, "components"), "schemas")
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestV2MatchesUpstream(t *testing.T) {
	definitions := readDefinitions(t)
	var parts []*spec.Swagger
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			if !v.Served {
				continue
			}
			part, err := builder.BuildOpenAPIV2(d, v.Name, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
		}
	}
	merged, err := builder.MergeSpecs(&spec.Swagger{}, parts...)
	if err != nil {
		t.Fatal(err)
	}
	want, got := toPlainObject(t, merged), get(t, definitions, "/openapi/v2")
	for _, schema := range sub(want, "definitions") {
		withoutDefaults(schema)
	}
	for _, o := range []object{got, want} { // a server adds its own groups to this list
		delete(sub(o, "definitions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"), "x-kubernetes-group-version-kind")
	}
	compare(t, "path", sub(got, "paths"), sub(want, "paths"),
		func(path string) bool { return strings.HasPrefix(path, "/apis/") && path != "/apis/" })
	compare(t, "parameter", sub(got, "parameters"), sub(want, "parameters"), anyName)
	compare(t, "definition", sub(got, "definitions"), sub(want, "definitions"),
		func(name string) bool { return !strings.HasPrefix(name, "io.k8s.apimachinery.") })
}

// TestDefinitionsAreNotChanged checks that definitions, which are shared, are not changed.
func TestDefinitionsAreNotChanged(t *testing.T) {
	definitions, before := readDefinitions(t), readDefinitions(t)
	get(t, definitions, "/openapi/v2")
	for _, g := range Groups(sources(definitions)) {
		get(t, definitions, "/openapi/v3/apis/"+g.Group+"/"+g.Version)
	}
	if !reflect.DeepEqual(definitions, before) {
		t.Error("a document has changed the definitions that it was made of")
	}
}
