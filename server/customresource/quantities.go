package customresource

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/celenv"
)

// readsQuantities returns what the rules of a schema read as quantities.
func readsQuantities(s *structuralschema.Structural) (out celenv.Reads) {
	add := func(e *structuralschema.ValidationExtensions) {
		for _, r := range e.XValidations {
			out.Add(celenv.Quantities(r.Rule, "self", "oldSelf"))
			out.Add(celenv.Quantities(r.MessageExpression, "self", "oldSelf"))
		}
	}
	v := structuralschema.Visitor{
		Structural:            func(s *structuralschema.Structural) bool { add(&s.ValidationExtensions); return false },
		NestedValueValidation: func(v *structuralschema.NestedValueValidation) bool { add(&v.ValidationExtensions); return false },
	}
	v.Visit(s)
	return out
}

// harmfulQuantity returns an error for an object with a text that would take minutes to evaluate if a rule read it as a
// quantity. The CEL library has no limit of its own, and cannot be interrupted. Of the metadata, rules see only the
// name.
func harmfulQuantity(obj *unstructured.Unstructured, reads celenv.Reads) *field.Error {
	harmful := quantity.IsHarmful
	if reads.Computed { // any part of a text may be read
		harmful = func(text string) bool { return quantity.IsSuspicious([]byte(text)) }
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
	return field.Invalid(field.NewPath(path), truncate(text), "rules of this kind read quantities: "+err.Error())
}

// truncate returns the beginning of a long text.
func truncate(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
