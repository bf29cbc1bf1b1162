package crdvalidation

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestQuantitiesOfDefinitions checks that rules over literals and defaults that would take minutes are rejected before
// one of them is evaluated.
func TestQuantitiesOfDefinitions(t *testing.T) {
	define := func(rule, text string) *apiextensionsv1.CustomResourceDefinition {
		c := definitionWithPattern(1, "")
		size := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64(300)),
			XValidations: apiextensionsv1.ValidationRules{{Rule: rule}}}
		if text != "" {
			size.Default = &apiextensionsv1.JSON{Raw: []byte(`"` + text + `"`)}
		}
		c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object",
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": size}}
		return c
	}
	const excessive = "1e-1000" // quantities that take minutes have some more digits
	for _, test := range []struct {
		rule, text string
		refused    bool
	}{
		{"isQuantity(self)", "10Gi", false},
		{"isQuantity(self)", excessive, true},
		{"self.split(':').all(p, isQuantity(p))", "1:" + excessive, true},
		{"isQuantity('" + excessive + "')", "", true},
		{"self != '" + excessive + "'", "a" + excessive, false},
	} {
		errs := fmt.Sprint(Validate(t.Context(), define(test.rule, test.text), nil))
		if got := strings.Contains(errs, "the exponent of a quantity has at most 3 digits"); got != test.refused {
			t.Errorf("%s of %q: refused %v, want %v: %.300s", test.rule, test.text, got, test.refused, errs)
		}
	}
	if e := checkQuantities(define("isQuantity(self)", excessive), define("isQuantity(self)", excessive)); e != nil {
		t.Errorf("a definition that is stored cannot be changed any more: %v", e)
	}
}
