package crdopenapi

import (
	"encoding/json"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"proa.dev/server/openapi"
)

// sources returns definitions as a server keeps them: schemas are loaded only when they are needed.
func sources(definitions []*Definition) (out []Source) {
	for _, d := range definitions {
		outline := d.DeepCopy()
		for i := range outline.Spec.Versions {
			outline.Spec.Versions[i].Schema = nil
		}
		out = append(out, Source{Outline: outline, Whole: func() *Definition { return d }})
	}
	return out
}

// tags returns the tags of the group versions by name.
func tags(definitions []*Definition) map[string]string {
	out := map[string]string{}
	for _, g := range Groups(sources(definitions)) {
		out[g.Group+"/"+g.Version] = g.Tag
	}
	return out
}

func TestTagsFollowDefinitions(t *testing.T) {
	definitions := readDefinitions(t)
	before := tags(definitions)
	slices.Reverse(definitions)
	for name, is := range tags(definitions) {
		if is != before[name] {
			t.Errorf("the order of definitions changes the tag of %s", name)
		}
	}
	change := func(what string, edit func(d *Definition), changed ...string) {
		definitions := readDefinitions(t)
		edit(definitions[0])
		after := tags(definitions)
		for name, was := range before {
			if got, want := after[name] != was, slices.Contains(changed, name); got != want {
				t.Errorf("%s: the tag of %s was %q, is %q", what, name, was, after[name])
			}
		}
	}
	change("status", func(d *Definition) { d.ResourceVersion = "7" })
	change("spec", func(d *Definition) { d.Generation++ }, "stable.example.com/v1", "stable.example.com/v1beta1")
	change("new object of the name", func(d *Definition) { d.UID = "other" }, "stable.example.com/v1", "stable.example.com/v1beta1")
	change("no longer established", func(d *Definition) { d.Status.Conditions[0].Status = apiextensionsv1.ConditionFalse },
		"stable.example.com/v1", "stable.example.com/v1beta1")
	change("no condition", func(d *Definition) { d.Status.Conditions = nil }, "stable.example.com/v1", "stable.example.com/v1beta1")
	change("version not served", func(d *Definition) { d.Spec.Versions[1].Served = false; d.Generation++ }, "stable.example.com/v1",
		"stable.example.com/v1beta1")
}

// FuzzSchema checks that documents can be built for every schema that the API can store.
func FuzzSchema(f *testing.F) {
	for _, d := range readDefinitions(f) {
		for _, v := range d.Spec.Versions {
			raw, err := json.Marshal(v)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v := apiextensionsv1.CustomResourceDefinitionVersion{}
		if json.Unmarshal(raw, &v) != nil {
			return
		}
		d := &Definition{}
		d.Spec.Group, d.Spec.Names.Kind, d.Spec.Names.ListKind = "example.com", "A", "AList"
		d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{v}
		c := custom(sources([]*Definition{d})[0], v.Name)
		for _, dialect := range []openapi.Dialect{openapi.V2, openapi.V3} {
			for _, schema := range []json.RawMessage{c.Schema(dialect), c.List(dialect, "com.example.v1.A")} {
				if out := map[string]any{}; json.Unmarshal(schema, &out) != nil || out["x-kubernetes-group-version-kind"] == nil {
					t.Errorf("the schema is %s", schema)
				}
			}
		}
	})
}
