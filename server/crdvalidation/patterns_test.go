package crdvalidation

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// definitionWithPattern returns a definition with a pattern in many fields.
func definitionWithPattern(fields int, pattern string) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for i := range fields {
		spec.Properties[fmt.Sprint("p", i)] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", Pattern: pattern},
		}}
	}
	c := &apiextensionsv1.CustomResourceDefinition{}
	c.Name = "things.example.com"
	c.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
			}}},
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
	}
	return c
}

// TestPatternsAreBounded checks that a definition whose regular expressions cost a minute and a gigabyte is rejected
// before one of them is compiled.
func TestPatternsAreBounded(t *testing.T) {
	const want = "the patterns of all schemas together"
	for _, test := range []struct {
		fields  int
		pattern string
		refused bool
	}{
		{10000, "^(a{1,900}){1}$", true},
		// the parser allows 1000 repetitions, so that the library rejects it
		{1, "^((((a{1,10}){1,10}){1,10}){1,10}b{100,}){1,10}$", false},
		{3000, "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", false},
		{500, "^[a-z]{1,253}$", false},
	} {
		c := definitionWithPattern(test.fields, test.pattern)
		errs := Validate(t.Context(), c, nil)
		if got := strings.Contains(fmt.Sprint(errs), want); got != test.refused {
			t.Errorf("%d times %s: refused %v, want %v: %.300s", test.fields, test.pattern, got, test.refused, fmt.Sprint(errs))
		}
	}
	stored := definitionWithPattern(3000, "^(a{1,900}){1}$")
	changed := stored.DeepCopy()
	changed.Spec.Names.ShortNames = []string{"t"}
	if e := checkPatterns(changed, stored); e != nil {
		t.Errorf("a definition that is stored cannot be changed any more: %v", e)
	}
}
