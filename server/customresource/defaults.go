package customresource

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// maxDefaults limits the memory that the defaults of one object take. The store accepts objects of 3 MiB.
const maxDefaults = 16 << 20

// checkDefaults refuses an object to which its schema would add very many defaults: each empty item of a list may get all
// those of the schema of the items.
func checkDefaults(x any, s *structuralschema.Structural) error {
	left := maxDefaults
	if countDefaults(x, s, &left); left < 0 {
		return apierrors.NewRequestEntityTooLargeError("the defaults of the object would take more than 16 MiB")
	}
	return nil
}

// countDefaults takes the sizes of the defaults that are missing in a value from what is left, until nothing is.
func countDefaults(x any, s *structuralschema.Structural, left *int) {
	if s == nil || *left < 0 {
		return
	}
	set := func(v any, s *structuralschema.Structural) any {
		if v != nil || s == nil || s.Nullable {
			return v
		}
		*left -= sizeOf(s.Default.Object)
		return s.Default.Object
	}
	switch x := x.(type) {
	case map[string]any:
		for name, property := range s.Properties {
			if v, found := x[name]; found {
				countDefaults(set(v, &property), &property, left)
			} else if property.Default.Object != nil {
				*left -= sizeOf(property.Default.Object)
				countDefaults(property.Default.Object, &property, left)
			}
		}
		if s.AdditionalProperties != nil {
			for name, v := range x {
				if _, known := s.Properties[name]; !known {
					countDefaults(set(v, s.AdditionalProperties.Structural), s.AdditionalProperties.Structural, left)
				}
			}
		}
	case []any:
		for _, v := range x {
			countDefaults(set(v, s.Items), s.Items, left)
		}
	}
}

// sizeOf estimates the memory that a value takes.
func sizeOf(x any) int {
	n := 48
	switch x := x.(type) {
	case string:
		n += len(x)
	case map[string]any:
		for name, v := range x {
			n += 32 + len(name) + sizeOf(v)
		}
	case []any:
		for _, v := range x {
			n += sizeOf(v)
		}
	}
	return n
}
