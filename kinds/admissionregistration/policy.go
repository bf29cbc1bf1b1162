package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

const paramKindDoc = "ParamKind specifies the kind of resources used to parameterize this policy"

// ValidatingAdmissionPolicies refuse objects by rules in CEL.
func ValidatingAdmissionPolicies(h Hooks) *kind.Def {
	type policy = admissionv1.ValidatingAdmissionPolicy
	return kind.Define(kind.Resource[policy]{
		Group: admissionv1.GroupName, Version: "v1", Kind: "ValidatingAdmissionPolicy", Plural: "validatingadmissionpolicies", Scope: kind.Cluster,
		Categories:   []string{"api-extensions"},
		Spec:         func(p *policy) any { return &p.Spec },
		Status:       func(p *policy) any { return &p.Status },
		Generation:   true,
		AnyFinalizer: true,
		Conditional:  true,
		Default: func(p *policy) {
			fill(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		},
		Validate: h.validateValidatingPolicy,
		Allow:    h.allowValidatingPolicy,
		Warn:     func(p, old *policy) []string { return staticWarning(p.Name, old != nil) },
		Subs: []kind.Sub[policy]{{
			Name:     "status",
			Reset:    []string{"spec", "metadata"},
			Prepare:  func(p, old *policy) { metav1.ResetObjectMetaForStatus(p, old) },
			Validate: validatePolicyStatus,
		}},
		Columns: []kind.Column[policy]{
			kind.NameColumn[policy](),
			{Name: "Validations", Type: "integer", Description: "Validations indicates the number of validation rules defined in this configuration", Value: func(p *policy) any {
				return int64(len(p.Spec.Validations))
			}},
			{Name: "ParamKind", Description: paramKindDoc, Value: func(p *policy) any { return paramKind(p.Spec.ParamKind) }},
			kind.AgeColumn[policy](),
		},
	})
}

// MutatingAdmissionPolicies change objects by rules in CEL.
func MutatingAdmissionPolicies(h Hooks) *kind.Def {
	type policy = admissionv1.MutatingAdmissionPolicy
	return kind.Define(kind.Resource[policy]{
		Group: admissionv1.GroupName, Version: "v1", Kind: "MutatingAdmissionPolicy", Plural: "mutatingadmissionpolicies", Scope: kind.Cluster,
		Older:        kind.SameLayout("v1beta1", "v1alpha1"),
		Categories:   []string{"api-extensions"},
		Spec:         func(p *policy) any { return &p.Spec },
		Generation:   true,
		AnyFinalizer: true,
		Conditional:  true,
		Default: func(p *policy) {
			fill(&p.Spec.FailurePolicy, admissionv1.Fail)
			defaultMatch(p.Spec.MatchConstraints)
		},
		Validate: h.validateMutatingPolicy,
		Allow:    h.allowMutatingPolicy,
		Warn:     func(p, old *policy) []string { return staticWarning(p.Name, old != nil) },
		Columns: []kind.Column[policy]{
			kind.NameColumn[policy](),
			{Name: "Mutations", Type: "integer", Description: "Mutation indicates the number of mutations rules defined in this configuration", Value: func(p *policy) any {
				return int64(len(p.Spec.Mutations))
			}},
			{Name: "ParamKind", Description: paramKindDoc, Value: func(p *policy) any { return paramKind(p.Spec.ParamKind) }},
			kind.AgeColumn[policy](),
		},
	})
}

func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return "<unset>"
	}
	return k.APIVersion + "/" + k.Kind
}
