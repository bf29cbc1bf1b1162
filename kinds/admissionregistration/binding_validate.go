package admissionregistration

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

func validateValidatingBinding(b, old *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	s, path := &b.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if s.PolicyName != "" {
		errs = append(errs, check.DNSSubdomain(s.PolicyName, path.Child("policyName"))...)
	}
	errs = append(errs, validateParamRef(s.ParamRef, path.Child("paramRef"))...)
	errs = append(errs, validateMatch(s.MatchResources, path.Child("matchResources"))...)
	errs = append(errs, validateActions(s.ValidationActions, path.Child("validationActions"))...)
	errs = append(errs, validateStatic(b.Name, old == nil)...)
	// These two errors are reported last.
	if s.PolicyName == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	}
	if len(s.ValidationActions) == 0 {
		errs = append(errs, field.Required(path.Child("validationActions"), ""))
	}
	return errs
}

func validateMutatingBinding(b, old *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	s, path := &b.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if s.PolicyName == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	} else {
		errs = append(errs, check.DNSSubdomain(s.PolicyName, path.Child("policyName"))...)
	}
	errs = append(errs, validateParamRef(s.ParamRef, path.Child("paramRef"))...)
	errs = append(errs, validateMatch(s.MatchResources, path.Child("matchResources"))...)
	if s.MatchResources != nil {
		errs = append(errs, validateMutable(s.MatchResources, path.Child("matchResources"))...)
	}
	return append(errs, validateStatic(b.Name, old == nil)...)
}

func validateActions(actions []admissionv1.ValidationAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range actions {
		errs = append(errs, check.OneOf(a, path.Index(i), admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(path, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

func validateParamRef(r *admissionv1.ParamRef, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	const exclusive = "name and selector are mutually exclusive"
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, check.Messages(r.Name, path.Child("name"), content.IsPathSegmentName(r.Name))...)
		if r.Selector != nil {
			errs = append(errs, field.Forbidden(path.Child("name"), exclusive))
		}
	}
	if r.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(r.Selector, metav1validation.LabelSelectorValidationOptions{},
			path.Child("selector"))...)
		if r.Name != "" {
			errs = append(errs, field.Forbidden(path.Child("selector"), exclusive))
		}
	}
	if r.Name == "" && r.Selector == nil {
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	if a := r.ParameterNotFoundAction; a == nil || *a == "" {
		errs = append(errs, field.Required(path.Child("parameterNotFoundAction"), ""))
	} else {
		errs = append(errs, check.OneOf(*a, path.Child("parameterNotFoundAction"), admissionv1.DenyAction, admissionv1.AllowAction)...)
	}
	return errs
}
