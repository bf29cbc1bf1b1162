package authorization

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

func validateSubjectReview(r *authorizationv1.SubjectAccessReview) field.ErrorList {
	return append(validateSpec(&r.Spec), validateNoMeta(r.ObjectMeta, r.ObjectMeta, "must be empty")...)
}

func validateSelfReview(r *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	errs := validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	errs = append(errs, validateSelectors(r.Spec.ResourceAttributes)...)
	return append(errs, validateNoMeta(r.ObjectMeta, r.ObjectMeta, "must be empty")...)
}

func validateLocalReview(r *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	errs := validateSpec(&r.Spec)
	rest := r.ObjectMeta
	rest.Namespace = ""
	errs = append(errs, validateNoMeta(rest, r.ObjectMeta, "must be empty except for namespace")...)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), check.GoFields(a),
			"disallowed on this kind of request"))
	}
	return errs
}

func validateNoMeta(meta, sent metav1.ObjectMeta, text string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), sent, text)}
}

func validateSpec(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateAttributes(s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified"))
	}
	return append(errs, validateSelectors(s.ResourceAttributes)...)
}

func validateAttributes(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) field.ErrorList {
	if (r == nil) != (n == nil) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), check.GoFields(n), "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
}

// validateSelectors accepts unknown operators: a newer client may ask about them.
func validateSelectors(a *authorizationv1.ResourceAttributes) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec.resourceAttributes")
	if s := a.FieldSelector; s != nil {
		at := path.Child("fieldSelector")
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r,
				metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				at.Child("requirements").Index(i))...)
		}
	}
	if s := a.LabelSelector; s != nil {
		at := path.Child("labelSelector")
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r,
				metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true},
				at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func validateSelector(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"),
			fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}
