package httpapi

import (
	"bytes"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/encode"
	"proa.dev/server/state"
)

// things returns the definition of a custom resource with five validation rules, as the controller of definitions would
// leave it.
func things(group string) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"}
	number, text := apiextensionsv1.JSONSchemaProps{Type: "integer"}, apiextensionsv1.JSONSchemaProps{Type: "string"}
	var rules apiextensionsv1.ValidationRules
	for _, rule := range []string{"self.a >= 0", "self.b >= self.a", "size(self.name) < 100", "self.name != 'never'",
		"!has(self.c) || self.c < 1000"} {
		rules = append(rules, apiextensionsv1.ValidationRule{Rule: rule})
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object", XValidations: rules,
						Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": number, "b": number, "c": number, "name": text,
							"nodeName": text},
					}},
				}},
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.nodeName"}},
			}},
		},
	}
}

// define creates a definition, established, and has its resource served.
func (r *rig) define(d *apiextensionsv1.CustomResourceDefinition) runtimeschema.GroupResource {
	r.Helper()
	if !r.follows {
		if err := r.State.FollowDefinitions(r.Context(), nil); err != nil {
			r.Fatal(err)
		}
		r.follows = true
	}
	on := runtimeschema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}
	made := r.create(on, d).(*apiextensionsv1.CustomResourceDefinition)
	made.Status.AcceptedNames = d.Spec.Names
	made.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
		Status: apiextensionsv1.ConditionTrue}}
	if _, err := r.Client(r.who).Update(r.Context(), on, made, "status"); err != nil {
		r.Fatal(err)
	}
	if err := r.State.Cache(r.State.Def(on)).WaitUntilFresh(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.State.Defs() // Defs makes the new definition effective
	return runtimeschema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
}

func thing(group, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Thing",
		"metadata": map[string]any{"name": name, "namespace": "ns", "labels": map[string]any{"app": "x"}},
		"spec":     map[string]any{"a": int64(1), "b": int64(2), "name": name, "nodeName": "n"},
	}}
}

// BenchmarkCreateCustom measures creates of custom objects with five validation rules, starting with their JSON text.
func BenchmarkCreateCustom(b *testing.B) {
	r := newRig(b)
	on := r.define(things("example.com"))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		text, err := thing("example.com", fmt.Sprint("c", n)).MarshalJSON()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.request("create", on.String(), "ns", "", func(q *server.Request) {
			q.Body, q.Media = text,
				codec.JSON
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListCustom measures encoding a list of a thousand custom objects as JSON.
func BenchmarkListCustom(b *testing.B) {
	r := newRig(b)
	on := r.define(things("example.com"))
	for n := range 1000 {
		r.create(on, thing("example.com", fmt.Sprint("c", n)))
	}
	var buf bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		res, err := r.request("list", on.String(), "", "", nil)
		if err != nil {
			b.Fatal(err)
		}
		buf.Reset()
		e := &encode.Encoder{Codec: r.State.Codec, Def: r.State.Def(on), Format: encode.Format{Media: codec.JSON}}
		if err := e.Response(&buf, res, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(buf.Len()), "B")
}

// TestCustomObjectsGiveNodesNoRights checks that a custom object whose resource has the name of a built-in one gives a node no
// rights.
func TestCustomObjectsGiveNodesNoRights(t *testing.T) {
	r := newRig(t)
	d := things("example.com")
	d.Name = "certificatesigningrequests.example.com"
	d.Spec.Names.Plural, d.Spec.Names.Singular = "certificatesigningrequests", "certificatesigningrequest"
	on := r.define(d)
	var o kind.Object = thing("example.com", "x")
	r.create(on, o)
	for range 50 { // the order of iteration over a map differs from run to run
		if got := (state.NodeView{State: r.State}).NodeOf("certificatesigningrequests", "ns", "x"); got != "" {
			t.Fatalf("a custom object gives rights to node %q", got)
		}
	}
}
