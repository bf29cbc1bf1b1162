package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// ValidateNodeSelector checks a choice of nodes. anyValue tolerates values that no label can have.
func ValidateNodeSelector(s *corev1.NodeSelector, anyValue bool, at *field.Path) field.ErrorList {
	terms := at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, ValidateNodeSelectorTerm(&s.NodeSelectorTerms[i], anyValue, terms.Index(i))...)
	}
	return errs
}

// ValidateNodeSelectorTerm checks one alternative of a choice of nodes.
func ValidateNodeSelectorTerm(t *corev1.NodeSelectorTerm, anyValue bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range t.MatchExpressions {
		errs = append(errs, validateNodeExpression(r, anyValue, at.Child("matchExpressions").Index(i))...)
	}
	for i, r := range t.MatchFields {
		errs = append(errs, validateNodeField(r, at.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeExpression(r corev1.NodeSelectorRequirement, anyValue bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
	for i, v := range r.Values {
		if !anyValue {
			errs = append(errs, check.Messages(v, values.Index(i), validation.IsValidLabelValue(v))...)
		}
	}
	return errs
}

func validateNodeField(r corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, v := range r.Values {
		errs = append(errs, check.Messages(v, values.Index(i), apivalidation.NameIsDNSSubdomain(v, false))...)
	}
	return errs
}

// hasBadNodeValue says whether a stored selector has a value that no label can have; it may then keep it.
func hasBadNodeValue(s *corev1.NodeSelector) bool {
	for _, t := range s.NodeSelectorTerms {
		for _, r := range t.MatchExpressions {
			for _, v := range r.Values {
				if len(validation.IsValidLabelValue(v)) > 0 {
					return true
				}
			}
		}
	}
	return false
}
