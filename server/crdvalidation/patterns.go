package crdvalidation

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/server/celenv"
)

// maxPatternCost limits the regular expressions of one definition together, in instructions of their programs; the
// largest definitions in use have a few thousand. Ten thousand fields with the pattern "a{1,900}" would cost a minute
// and a gigabyte, each time the schema is compiled.
const maxPatternCost = 1 << 20

// checkPatterns rejects a definition whose patterns cost too much. One that is stored already may stay.
func checkPatterns(c, old *apiextensionsv1.CustomResourceDefinition) *field.Error {
	if patternCost(c) <= maxPatternCost || old != nil && patternCost(old) > maxPatternCost {
		return nil
	}
	return field.Forbidden(field.NewPath("spec", "versions"), fmt.Sprintf("the patterns of all schemas together must compile to at most %d instructions", maxPatternCost))
}

// patternCost adds up the cost of the patterns of a definition, until the limit is exceeded.
func patternCost(c *apiextensionsv1.CustomResourceDefinition) (cost int) {
	for i := range c.Spec.Versions {
		if s := c.Spec.Versions[i].Schema; s != nil {
			eachSchema(s.OpenAPIV3Schema, func(s *apiextensionsv1.JSONSchemaProps) {
				if s.Pattern != "" && cost <= maxPatternCost {
					cost += celenv.PatternSize(s.Pattern) // an invalid one is rejected elsewhere
				}
			})
		}
	}
	return cost
}
