package custom

import (
	"encoding/json"
	"regexp"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/quantity"
)

// readsQuantities says that a rule of a schema calls quantity() or isQuantity().
func readsQuantities(s *structuralschema.Structural) bool {
	text, err := json.Marshal(s)
	return err != nil || regexp.MustCompile(`[qQ]uantity\s*\(`).Match(text)
}

// harmfulQuantity returns an error for an object with a text that rules, if they read it as a quantity, would take minutes for. The
// library of the rules has no bound of its own, and cannot be stopped.
func harmfulQuantity(obj *unstructured.Unstructured) *field.Error {
	path, text := quantity.HarmfulIn(obj.Object)
	if text == "" {
		return nil
	}
	return field.Invalid(field.NewPath(path), shortened(text), "rules of this kind read quantities: "+quantity.Check(text).Error())
}

// shortened is the beginning of a long text.
func shortened(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return text[:most] + "..."
}
