package check

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Same is Immutable for a struct of the API, which an error shows as Internal does.
func Same(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(old, value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, Internal(value), validation.FieldImmutableErrorMsg)}
}
