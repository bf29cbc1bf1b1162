package customresource

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestExcessiveQuantities checks that quantities out of bounds are found in fields that rules read, also in parts of a text
// where rules split texts, and nowhere else.
func TestExcessiveQuantities(t *testing.T) {
	ruled := func(rule string) *structuralschema.Structural {
		size := structuralschema.Structural{
			ValidationExtensions: structuralschema.ValidationExtensions{XValidations: apiextensionsv1.ValidationRules{{Rule: rule}}}}
		return &structuralschema.Structural{
			Generic:    structuralschema.Generic{Description: "A quantity (of things)."},
			Properties: map[string]structuralschema.Structural{"spec": {Properties: map[string]structuralschema.Structural{"size": size}}},
		}
	}
	const whole, parts = "isQuantity(self)", "self.split(':').all(p, isQuantity(p))"
	object := func(meta, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": meta, "spec": spec}}
	}
	label := map[string]any{"name": "a", "labels": map[string]any{"commit": "4e12345"}}
	for _, test := range []struct {
		rule string
		obj  *unstructured.Unstructured
		want string // the field with the quantity
	}{
		{whole, object(label, map[string]any{"size": "10Gi", "image": "a:4e12345"}), ""},
		{whole, object(label, map[string]any{"size": "1e-300000000"}), "spec.size"},
		{whole, object(nil, map[string]any{"1e-300000000": "1"}), "spec.1e-300000000"},
		{whole, object(map[string]any{"name": "1e-300000000"}, nil), "metadata.name"},
		{parts, object(label, map[string]any{"size": "10Gi:20Gi"}), ""},
		{parts, object(label, map[string]any{"size": []any{"1", "1:1e-300000000"}}), "spec.size[1]"},
		{parts, object(nil, map[string]any{"1:1e-300000000": "1"}), "spec.1:1e-300000000"},
		{"self.quantity > 1", object(nil, map[string]any{"size": "1e-300000000"}), ""},
	} {
		got := ""
		if reads := readsQuantities(ruled(test.rule)); reads.Fields || reads.Computed {
			if e := harmfulQuantity(test.obj, reads); e != nil {
				got = e.Field
			}
		}
		if got != test.want {
			t.Errorf("%s of %v: %q, want %q", test.rule, test.obj.Object, got, test.want)
		}
	}
}
