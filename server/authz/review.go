package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
)

// AttributesOfReview returns the attributes in a SubjectAccessReview or LocalSubjectAccessReview. The spec must be valid, which
// is checked elsewhere; one without attributes becomes a question that nobody allows.
func AttributesOfReview(spec *authorizationv1.SubjectAccessReviewSpec) Attributes {
	u := &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID}
	if spec.Extra != nil {
		u.Extra = make(map[string][]string, len(spec.Extra))
		for key, values := range spec.Extra {
			u.Extra[key] = values
		}
	}
	return attributesOf(u, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// AttributesOfSelfReview returns the attributes in a SelfSubjectAccessReview of u.
func AttributesOfSelfReview(u user.Info, spec *authorizationv1.SelfSubjectAccessReviewSpec) Attributes {
	return attributesOf(u, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// AnswerReview asks the authorizer and returns the status of the review.
func AnswerReview(ctx context.Context, authorizer Authorizer, a Attributes) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := authorizer.Authorize(ctx, a)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == Allow,
		Denied:          decision == Deny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &a),
	}
}

func attributesOf(u user.Info, resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) Attributes {
	switch {
	case resource != nil:
		a := Attributes{
			User: u, Verb: resource.Verb, Namespace: resource.Namespace,
			Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
			Subresource: resource.Subresource, Name: resource.Name, IsResource: true,
		}
		if a.Version == "" {
			a.Version = "*"
		}
		reviewSelectors(&a, resource)
		return a
	case other != nil:
		return Attributes{User: u, Verb: other.Verb, Path: other.Path}
	default:
		return Attributes{User: u}
	}
}

// reviewSelectors sets each selector from its text or its requirements; validation allows only one of both.
func reviewSelectors(a *Attributes, in *authorizationv1.ResourceAttributes) {
	if s := in.FieldSelector; s != nil {
		a.ParseSelectors(s.RawSelector, "")
		if len(s.Requirements) > 0 {
			a.FieldSelector, a.FieldSelectorError = fieldRequirements(s.Requirements)
		}
	}
	if s := in.LabelSelector; s != nil {
		a.ParseSelectors("", s.RawSelector)
		if len(s.Requirements) > 0 {
			a.LabelSelector, a.LabelSelectorError = labelRequirements(s.Requirements)
		}
	}
}

// fieldRequirements converts the requirements that are supported. They are ANDed, so that dropping one widens the
// question, which can only make the answer stricter.
func fieldRequirements(in []metav1.FieldSelectorRequirement) (fields.Requirements, error) {
	var out fields.Requirements
	var errs []error
	for i := range in {
		requirement, err := fieldRequirement(&in[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, requirement)
	}
	return out, aggregate(errs)
}

func fieldRequirement(in *metav1.FieldSelectorRequirement) (fields.Requirement, error) {
	if len(in.Values) > 1 {
		return fields.Requirement{}, errors.New("fieldSelectors do not yet support multiple values")
	}
	out := fields.Requirement{Field: in.Key}
	switch in.Operator {
	case metav1.FieldSelectorOpIn:
		if len(in.Values) == 0 {
			return out, errors.New("fieldSelectors in must have one value")
		}
		out.Operator = selection.Equals
	case metav1.FieldSelectorOpNotIn:
		if len(in.Values) == 0 {
			return out, errors.New("fieldSelectors not in must have one value")
		}
		out.Operator = selection.NotEquals
	case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		return out, fmt.Errorf("fieldSelectors do not yet support %v", in.Operator)
	default:
		return out, fmt.Errorf("%q is not a valid field selector operator", in.Operator)
	}
	out.Value = in.Values[0]
	return out, nil
}

func labelRequirements(in []metav1.LabelSelectorRequirement) (labels.Requirements, error) {
	var out labels.Requirements
	var errs []error
	for i := range in {
		var op selection.Operator
		switch in[i].Operator {
		case metav1.LabelSelectorOpIn:
			op = selection.In
		case metav1.LabelSelectorOpNotIn:
			op = selection.NotIn
		case metav1.LabelSelectorOpExists:
			op = selection.Exists
		case metav1.LabelSelectorOpDoesNotExist:
			op = selection.DoesNotExist
		default:
			errs = append(errs, fmt.Errorf("%q is not a valid label selector operator", in[i].Operator))
			continue
		}
		requirement, err := labels.NewRequirement(in[i].Key, op, in[i].Values)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *requirement)
	}
	return out, aggregate(errs)
}

// evaluationError returns what the status says about errors and selectors that were ignored.
func evaluationError(err error, a *Attributes) string {
	var parts []string
	if err != nil {
		parts = append(parts, err.Error())
	}
	ignored := func(selector string, kept int, err error) {
		how := "ignored"
		if kept > 0 {
			how = "partially ignored"
		}
		if err != nil {
			parts = append(parts, "spec.resourceAttributes."+selector+" "+how+" due to parse error")
		}
	}
	ignored("fieldSelector", len(a.FieldSelector), a.FieldSelectorError)
	ignored("labelSelector", len(a.LabelSelector), a.LabelSelectorError)
	return strings.Join(parts, "; ")
}
