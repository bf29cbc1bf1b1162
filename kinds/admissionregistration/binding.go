package admissionregistration

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"proa.dev/kinds/kind"
)

const (
	policyNameDoc = "PolicyName indicates the policy definition which the policy binding binded to"
	paramRefDoc   = "ParamRef indicates the param resource which sets the configuration param"
)

// ValidatingAdmissionPolicyBindings put a policy into effect.
func ValidatingAdmissionPolicyBindings(h Hooks) *kind.Def {
	type binding = admissionv1.ValidatingAdmissionPolicyBinding
	return kind.Define(kind.Resource[binding]{
		Group: admissionv1.GroupName, Version: "v1", Kind: "ValidatingAdmissionPolicyBinding", Plural: "validatingadmissionpolicybindings", Scope: kind.Cluster,
		Categories:   []string{"api-extensions"},
		Spec:         func(b *binding) any { return &b.Spec },
		Generation:   true,
		AnyFinalizer: true,
		Conditional:  true,
		Default:      func(b *binding) { defaultMatch(b.Spec.MatchResources) },
		Validate:     validateValidatingBinding,
		Allow:        h.allowValidatingBinding,
		Warn:         func(b, old *binding) []string { return staticWarning(b.Name, old != nil) },
		Columns: []kind.Column[binding]{
			kind.NameColumn[binding](),
			{Name: "PolicyName", Description: policyNameDoc, Value: func(b *binding) any { return b.Spec.PolicyName }},
			{Name: "ParamRef", Description: paramRefDoc, Value: func(b *binding) any { return paramRef(b.Spec.ParamRef) }},
			kind.AgeColumn[binding](),
		},
	})
}

// MutatingAdmissionPolicyBindings put a policy into effect.
func MutatingAdmissionPolicyBindings(h Hooks) *kind.Def {
	type binding = admissionv1.MutatingAdmissionPolicyBinding
	return kind.Define(kind.Resource[binding]{
		Group: admissionv1.GroupName, Version: "v1", Kind: "MutatingAdmissionPolicyBinding", Plural: "mutatingadmissionpolicybindings", Scope: kind.Cluster,
		Older:        kind.SameLayout("v1beta1", "v1alpha1"),
		Categories:   []string{"api-extensions"},
		Spec:         func(b *binding) any { return &b.Spec },
		Generation:   true,
		AnyFinalizer: true,
		Conditional:  true,
		Default:      func(b *binding) { defaultMatch(b.Spec.MatchResources) },
		Validate:     validateMutatingBinding,
		Allow:        h.allowMutatingBinding,
		Warn:         func(b, old *binding) []string { return staticWarning(b.Name, old != nil) },
		Columns: []kind.Column[binding]{
			kind.NameColumn[binding](),
			{Name: "PolicyName", Description: policyNameDoc, Value: func(b *binding) any { return b.Spec.PolicyName }},
			{Name: "ParamRef", Description: paramRefDoc, Value: func(b *binding) any { return paramRef(b.Spec.ParamRef) }},
			kind.AgeColumn[binding](),
		},
	})
}

func paramRef(r *admissionv1.ParamRef) string {
	switch {
	case r == nil:
		return "<unset>"
	case r.Name != "" && r.Namespace != "":
		return r.Namespace + "/" + r.Name
	case r.Name != "":
		return "*/" + r.Name
	case r.Selector != nil:
		return r.Selector.String()
	}
	return "<unset>"
}
