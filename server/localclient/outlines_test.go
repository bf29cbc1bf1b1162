package localclient

import (
	"log/slog"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/state"
	memorystore "proa.dev/store/memory"
	"proa.dev/watch"
)

// TestViewsOfOutlines checks that a view shows whole definitions unless it is asked for outlines, and a view of outlines can still
// return a whole one.
func TestViewsOfOutlines(t *testing.T) {
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	def, store := apiextensions.CustomResourceDefinitions(apiextensions.Hooks{}), memorystore.New(memorystore.Config{})
	s := state.New(t.Context(), codec.New(scheme), store, []*kind.Def{def}, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
	d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{}}}
	d.SetGroupVersionKind(def.GroupVersionKind)
	value, err := s.Codec.Store(def, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), kv.Write{Key: def.Key("", d.Name), Value: value}); err != nil {
		t.Fatal(err)
	}
	cache := s.Cache(def)
	if err := cache.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	hasSchema := func(o kind.Object) bool {
		return o.(*apiextensionsv1.CustomResourceDefinition).Spec.Versions[0].Schema != nil
	}
	whole := &view{def: def, cache: cache, sel: watch.Selection{Prefix: def.Prefix()}, show: (*watch.Entry).Object}
	for what, v := range map[string]client.View{"a view": whole,
		"a part": newScopedView(&view{def: def, cache: cache, show: whole.show}, client.Scope{Name: d.Name})} {
		for want, v := range map[bool]client.View{true: v, false: client.Outlines(v)} {
			if o, found := v.Get("", d.Name); !found || hasSchema(o) != want {
				t.Errorf("%s: Get finds %t, with schemas is not %t", what, found, want)
			}
			for o := range v.List("") {
				if hasSchema(o) != want {
					t.Errorf("%s: List shows schemas: %t", what, !want)
				}
			}
			for o := range v.By(client.Index{Name: "all", Values: func(kind.Object) []string { return []string{"a"} }}, "a") {
				if hasSchema(o) != want {
					t.Errorf("%s: By shows schemas: %t", what, !want)
				}
			}
			for e := range v.Events(t.Context()) {
				if hasSchema(e.Object) != want {
					t.Errorf("%s: Events show schemas: %t", what, !want)
				}
				break
			}
			if o, found := client.WholeObject(v, "", d.Name); !found || !hasSchema(o) {
				t.Errorf("%s: Whole finds %t, and no schema", what, found)
			}
		}
	}
	if _, found := client.WholeObject(newScopedView(&view{def: def, cache: cache, show: whole.show}, client.Scope{Name: "other"}), "",
		d.Name); found {
		t.Error("a part finds what is not in its scope")
	}
}
