package state

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kv"
	memorystore "proa.dev/store/memory"
)

// largeDefinition is an established definition whose schema has many fields, each with a default.
func largeDefinition(n, fields int) *apiextensionsv1.CustomResourceDefinition {
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for i := range fields {
		properties[fmt.Sprint("field", i)] = apiextensionsv1.JSONSchemaProps{Type: "string",
			Default: &apiextensionsv1.JSON{Raw: []byte(`"x"`)}}
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: fmt.Sprintf("things%d", n), Kind: fmt.Sprintf("Thing%d", n),
		ListKind: fmt.Sprintf("Thing%dList", n)}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: names.Plural + ".example.com", UID: types.UID(fmt.Sprint(n)), Generation: 1},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties},
				}}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: names, StoredVersions: []string{"v1"},
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
				Status: apiextensionsv1.ConditionTrue}},
		},
	}
}

// TestDefinitionsAreCachedEncoded checks that the cache keeps only the stored bytes and an outline of an unused definition, and
// no decoded schema. A reader gets the whole definition, and its objects have their schema.
func TestDefinitionsAreCachedEncoded(t *testing.T) {
	const count, fields = 100, 200
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	def, store := apiextensions.CustomResourceDefinitions(apiextensions.Hooks{}), memorystore.New(memorystore.Config{})
	s := New(t.Context(), codec.New(scheme), store, []*kind.Def{def}, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	stored := 0
	for i := range count {
		d := largeDefinition(i, fields)
		value, err := s.Codec.Store(def, d)
		if err != nil {
			t.Fatal(err)
		}
		stored += len(value)
		if _, err := store.Commit(t.Context(), kv.Write{Key: def.Key("", d.Name), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	before := heapInUse()
	if err := s.FollowDefinitions(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	// A decoded field takes 0.7 KiB, so that the schemas alone would take some 140 KiB for each definition.
	if grown := heapInUse() - before; grown > int64(stored)+count*20<<10 {
		t.Errorf("%d definitions of %d KiB in the store take %d KiB", count, stored>>10, grown>>10)
	}
	for name, r := range s.customResources.all {
		if r.Definition.Spec.Versions[0].Schema != nil {
			t.Errorf("the resource of %s holds its schema decoded", name)
		}
	}

	thing := s.Find(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things7"})
	if thing == nil {
		t.Fatal("a resource is not served")
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing7"}}
	if thing.Default(u); u.Object["field199"] != "x" {
		t.Errorf("an object has no defaults: %v", u.Object)
	}
	o, err := s.Get(t.Context(), gr.CustomResourceDefinitions, "", "things7.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if d := o.(*apiextensionsv1.CustomResourceDefinition); len(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties) != fields {
		t.Errorf("the definition is read as %v", d)
	}
}

// heapInUse returns how much memory is in use.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
