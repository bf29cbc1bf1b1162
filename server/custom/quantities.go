package custom

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/quantity"
	"proa.dev/server/expressions"
)

// readsQuantities says what the rules of a schema read as quantities.
func readsQuantities(s *structuralschema.Structural) (out expressions.Reads) {
	add := func(e *structuralschema.ValidationExtensions) {
		for _, r := range e.XValidations {
			out.Add(expressions.Quantities(r.Rule, "self", "oldSelf"))
			out.Add(expressions.Quantities(r.MessageExpression, "self", "oldSelf"))
		}
	}
	v := structuralschema.Visitor{
		Structural:            func(s *structuralschema.Structural) bool { add(&s.ValidationExtensions); return false },
		NestedValueValidation: func(v *structuralschema.NestedValueValidation) bool { add(&v.ValidationExtensions); return false },
	}
	v.Visit(s)
	return out
}

// harmfulQuantity returns an error for an object with a text that rules, if they read it as a quantity, would take minutes for. The
// library of the rules has no bound of its own, and cannot be stopped. Of the metadata, rules see the name.
func harmfulQuantity(obj *unstructured.Unstructured, reads expressions.Reads) *field.Error {
	harmful := quantity.Harmful
	if reads.Computed { // any part of a text may be read
		harmful = func(text string) bool { return quantity.Suspicious([]byte(text)) }
	}
	seen := map[string]any{"metadata": map[string]any{"name": obj.GetName(), "generateName": obj.GetGenerateName()}}
	for key, value := range obj.Object {
		if key != "metadata" {
			seen[key] = value
		}
	}
	path, text := quantity.Find(seen, harmful)
	if text == "" {
		return nil
	}
	err := quantity.Check(text)
	if err == nil {
		err = quantity.ErrExponent
	}
	return field.Invalid(field.NewPath(path), shortened(text), "rules of this kind read quantities: "+err.Error())
}

// shortened is the beginning of a long text.
func shortened(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
