// Package crdvalidation validates CustomResourceDefinitions with the published library: schemas, conversions, columns
// and CEL rules. It is not part of the kind because the library links CEL, which only the server may do. Nothing is
// compiled before there is a rule.
package crdvalidation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa.dev/server/celenv"
)

// Validate checks a definition, or its update when old is not nil. Of the metadata it only reports a name that does not
// fit the spec; the pipeline checks the rest.
func Validate(ctx context.Context, c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	celenv.Base() // the library takes the environment that this has bounded
	if e := cmp.Or(checkPatterns(c, old), checkQuantities(c, old), checkRules(c)); e != nil {
		return field.ErrorList{e}
	}
	is, err := toInternal(c)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if old == nil {
		return withoutMetadata(validation.ValidateCustomResourceDefinition(ctx, is))
	}
	was, err := toInternal(old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return withoutMetadata(validation.ValidateCustomResourceDefinitionUpdate(ctx, is, was))
}

// checkRules rejects a definition with a rule that cannot be compiled in reasonable time.
func checkRules(c *apiextensionsv1.CustomResourceDefinition) (bad *field.Error) {
	var check celenv.Checker
	for i := range c.Spec.Versions {
		s := c.Spec.Versions[i].Schema
		if s == nil {
			continue
		}
		at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		eachSchema(s.OpenAPIV3Schema, func(s *apiextensionsv1.JSONSchemaProps) {
			for _, r := range s.XValidations {
				for _, text := range []string{r.Rule, r.MessageExpression} {
					if err := check.Check(text); err != nil && bad == nil {
						bad = field.Invalid(at, text, err.Error())
					}
				}
			}
		})
	}
	return bad
}

// Warn returns warnings about unknown formats, and about sets of items that cannot be compared. For an update only new
// warnings are returned.
func Warn(c, old *apiextensionsv1.CustomResourceDefinition) []string {
	warnings := warningsOf(c)
	if old != nil {
		was := warningsOf(old)
		warnings = slices.DeleteFunc(warnings, func(w string) bool { return slices.Contains(was, w) })
	}
	return warnings
}

func toInternal(c *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	// The conversion reuses parts of its input.
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(c.DeepCopy(), out, nil)
	return out, err
}

func withoutMetadata(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return strings.HasPrefix(e.Field, "metadata") && !strings.Contains(e.Detail, "must be spec.names.plural") &&
			!strings.HasPrefix(e.Field, "metadata.annotations[")
	})
}

func warningsOf(c *apiextensionsv1.CustomResourceDefinition) []string {
	is, err := toInternal(c)
	if err != nil {
		return nil
	}
	var formats, sets []string
	version := environment.DefaultCompatibilityVersion()
	visit := func(s *apiextensions.JSONSchemaProps) bool {
		if s.Format != "" {
			schema := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, f := range apiservervalidation.GetUnrecognizedFormats(schema, version) {
				formats = append(formats, fmt.Sprintf("unrecognized format %q", f))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil &&
			(s.Items.Schema.Type == "object" || s.Items.Schema.Type == "array") {
			sets = append(sets, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", s.Items.Schema.Type))
		}
		return false
	}
	if v := is.Spec.Validation; v != nil {
		validation.SchemaHas(v.OpenAPIV3Schema, visit)
	}
	for _, v := range is.Spec.Versions {
		if v.Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, visit)
		}
	}
	slices.Sort(sets)
	return append(formats, slices.Compact(sets)...)
}
