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

// Reviewed returns the question that a SubjectAccessReview or LocalSubjectAccessReview asks. The spec must be
// valid, which is checked elsewhere; one that asks nothing becomes a question that nobody allows.
func Reviewed(spec *authorizationv1.SubjectAccessReviewSpec) Attributes {
	u := &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID}
	if spec.Extra != nil {
		u.Extra = make(map[string][]string, len(spec.Extra))
		for key, values := range spec.Extra {
			u.Extra[key] = values
		}
	}
	return reviewed(u, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// SelfReviewed returns the question that a SelfSubjectAccessReview asks on behalf of u.
func SelfReviewed(u user.Info, spec *authorizationv1.SelfSubjectAccessReviewSpec) Attributes {
	return reviewed(u, spec.ResourceAttributes, spec.NonResourceAttributes)
}

// Answer asks the authorizer and returns the status of the review that asked.
func Answer(ctx context.Context, authorizer Authorizer, a Attributes) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := authorizer.Authorize(ctx, a)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == Allow,
		Denied:          decision == Deny,
		Reason:          reason,
		EvaluationError: evaluationError(err, &a),
	}
}

func reviewed(u user.Info, resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) Attributes {
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

// reviewSelectors takes each selector as text or as requirements; validation lets only one of both through.
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

// fieldRequirements keeps what can be understood: requirements are ANDed, so that dropping one asks for more
// and can only be answered more strictly.
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

// evaluationError tells the reviewer what was left out of the answer.
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
