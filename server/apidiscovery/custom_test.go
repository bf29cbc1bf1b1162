package apidiscovery

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// TestCustomResources checks that custom resources have group and version in their kind, and fewer verbs while their
// definition is being deleted.
func TestCustomResources(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	custom := &kind.Def{Traits: kind.Traits{GroupVersionKind: gvk, Plural: "things", Verbs: kind.AllVerbs()}, JSONOnly: true,
		Subs: []*kind.SubDef{{Name: "status"}}}
	resource := versionOf([]*kind.Def{custom}, "v1").Resources[0]
	if got := *resource.ResponseKind; got.Group != "example.com" || got.Version != "v1" || got.Kind != "Thing" ||
		*resource.Subresources[0].ResponseKind != got {
		t.Errorf("kind %v, of the subresource %v", got, resource.Subresources[0].ResponseKind)
	}
	builtIn := &kind.Def{Traits: kind.Traits{GroupVersionKind: gvk, Plural: "things", Verbs: kind.AllVerbs()}}
	if got := versionOf([]*kind.Def{builtIn}, "v1").Resources[0].ResponseKind; got.Group != "" || got.Version != "" {
		t.Errorf("built in: %v", got)
	}
	custom.Terminating = true
	want := []string{"delete", "deletecollection", "get", "list", "watch"}
	if got := versionOf([]*kind.Def{custom}, "v1").Resources[0].Verbs; !slices.Equal(got, want) {
		t.Errorf("aggregated: %v", got)
	}
	if got := Resources([]*kind.Def{custom}, gvk.GroupVersion()).APIResources[0].Verbs; !slices.Equal(got, want) {
		t.Errorf("legacy: %v", got)
	}
}
