package custom

import (
	"strconv"

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
			out.Add(expressions.Quantities(r.Rule))
			out.Add(expressions.Quantities(r.MessageExpression))
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
	find := quantity.HarmfulIn
	if reads.Computed { // any part of a text may be read
		find = suspiciousIn
	}
	seen := map[string]any{"metadata": map[string]any{"name": obj.GetName(), "generateName": obj.GetGenerateName()}}
	for key, value := range obj.Object {
		if key != "metadata" {
			seen[key] = value
		}
	}
	path, text := find(seen)
	if text == "" {
		return nil
	}
	err := quantity.Check(text)
	if err == nil {
		err = quantity.ErrExponent
	}
	return field.Invalid(field.NewPath(path), shortened(text), "rules of this kind read quantities: "+err.Error())
}

// suspiciousIn returns the first text with a part that would be a quantity out of bounds, with its path; both are empty when there is none.
func suspiciousIn(value any) (path, text string) {
	switch v := value.(type) {
	case string:
		if quantity.Suspicious([]byte(v)) {
			return "", v
		}
	case map[string]any:
		for key, of := range v {
			if quantity.Suspicious([]byte(key)) {
				return key, key
			}
			if path, text := suspiciousIn(of); text != "" {
				return below(key, path), text
			}
		}
	case []any:
		for i, of := range v {
			if path, text := suspiciousIn(of); text != "" {
				return below("["+strconv.Itoa(i)+"]", path), text
			}
		}
	}
	return "", ""
}

// below is the path of something within a field or element.
func below(at, path string) string {
	if path == "" || path[0] == '[' {
		return at + path
	}
	return at + "." + path
}

// shortened is the beginning of a long text.
func shortened(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
