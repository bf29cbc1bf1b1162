package crdvalidation

import (
	"encoding/json"
	"errors"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/server/celenv"
)

// checkQuantities rejects a definition whose rules would take minutes over its own literals and defaults, which the
// library evaluates without limits while it validates the definition. One that is stored already may stay.
func checkQuantities(c, old *apiextensionsv1.CustomResourceDefinition) *field.Error {
	err := harmfulRules(c)
	if err == nil || old != nil && harmfulRules(old) != nil {
		return nil
	}
	return field.Forbidden(field.NewPath("spec", "versions"), "rules and defaults: "+err.Error())
}

func harmfulRules(c *apiextensionsv1.CustomResourceDefinition) error {
	for i := range c.Spec.Versions {
		s := c.Spec.Versions[i].Schema
		if s == nil {
			continue
		}
		var reads celenv.Reads
		var defaults []error
		eachSchema(s.OpenAPIV3Schema, func(s *apiextensionsv1.JSONSchemaProps) {
			for _, r := range s.XValidations {
				reads.Add(celenv.Quantities(r.Rule, "self", "oldSelf"))
				reads.Add(celenv.Quantities(r.MessageExpression, "self", "oldSelf"))
			}
			if s.Default != nil && quantity.IsSuspicious(s.Default.Raw) {
				defaults = append(defaults, harmfulDefault(s.Default.Raw))
			}
		})
		switch {
		case reads.Err != nil:
			return reads.Err
		case reads.Computed && len(defaults) > 0:
			return quantity.ErrExponent
		case reads.Fields:
			if err := errors.Join(defaults...); err != nil {
				return err
			}
		}
	}
	return nil
}

// harmfulDefault returns an error for a default with a text that is a quantity out of bounds.
func harmfulDefault(raw []byte) error {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return nil // it is rejected elsewhere
	}
	if _, text := quantity.FindHarmful(value); text != "" {
		return quantity.Check(text)
	}
	return nil
}

// eachSchema calls f with a schema and all schemas within it.
func eachSchema(s *apiextensionsv1.JSONSchemaProps, f func(*apiextensionsv1.JSONSchemaProps)) {
	if s == nil {
		return
	}
	f(s)
	for _, fields := range []map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for _, p := range fields {
			eachSchema(&p, f)
		}
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			eachSchema(&list[i], f)
		}
	}
	eachSchema(s.Not, f)
	if s.Items != nil {
		eachSchema(s.Items.Schema, f)
		for i := range s.Items.JSONSchemas {
			eachSchema(&s.Items.JSONSchemas[i], f)
		}
	}
	for _, more := range []*apiextensionsv1.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if more != nil {
			eachSchema(more.Schema, f)
		}
	}
}
