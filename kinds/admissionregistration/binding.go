package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// ValidatingAdmissionPolicyBindings put validating policies into effect.
func ValidatingAdmissionPolicyBindings(h Hooks) *kind.Def {
	type binding = admissionv1.ValidatingAdmissionPolicyBinding
	r := bindingResource(h, "validatingadmissionpolicies", func(b *binding) admissionv1.MutatingAdmissionPolicyBindingSpec {
		return admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: b.Spec.PolicyName, ParamRef: b.Spec.ParamRef,
			MatchResources: b.Spec.MatchResources}
	})
	r.Kind, r.Plural = "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
	r.Spec = func(b *binding) any { return &b.Spec }
	r.Validate = validateValidatingBinding
	return kind.Define(r)
}

// MutatingAdmissionPolicyBindings put mutating policies into effect.
func MutatingAdmissionPolicyBindings(h Hooks) *kind.Def {
	type binding = admissionv1.MutatingAdmissionPolicyBinding
	r := bindingResource(h, "mutatingadmissionpolicies", func(b *binding) admissionv1.MutatingAdmissionPolicyBindingSpec { return b.Spec })
	r.Kind, r.Plural = "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"
	r.Older = kind.SameLayout("v1beta1", "v1alpha1")
	r.Spec = func(b *binding) any { return &b.Spec }
	r.Validate = validateMutatingBinding
	return kind.Define(r)
}

// bindingResource returns what both kinds of bindings share. policies is the resource that they bind, and spec returns the spec of a
// binding as that of the mutating kind, whose fields both have.
func bindingResource[T any, P interface {
	*T
	kind.Object
}](h Hooks, policies string, spec func(*T) admissionv1.MutatingAdmissionPolicyBindingSpec) kind.Resource[T] {
	return kind.Resource[T]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: admissionv1.GroupName, Version: "v1"}, Scope: kind.Cluster,
			Categories:              []string{"api-extensions"},
			Generation:              true,
			RequiresResourceVersion: true,
		},
		AnyFinalizer: true,
		Default:      func(b *T) { defaultMatch(spec(b).MatchResources) },
		Allow: func(ctx context.Context, d kind.Server, b, _ *T) field.ErrorList {
			s := spec(b)
			return h.allowParamRef(ctx, d, s.ParamRef, s.PolicyName, func() (*admissionv1.ParamKind, error) {
				policy, err := d.Get(ctx, admissionv1.Resource(policies), "", s.PolicyName)
				if err != nil {
					return nil, err
				}
				return paramKindOf(policy), nil
			})
		},
		Warn: func(b, old *T) []string { return staticWarning(P(b).GetName(), old != nil) },
		Columns: []kind.Column[T]{
			kind.NameColumn[T, P](),
			{Name: "PolicyName", Description: "PolicyName indicates the policy definition which the policy binding binded to",
				Value: func(b *T) any { return spec(b).PolicyName }},
			{Name: "ParamRef", Description: "ParamRef indicates the param resource which sets the configuration param",
				Value: func(b *T) any { return paramRefText(spec(b).ParamRef) }},
			kind.AgeColumn[T, P](),
		},
	}
}

func paramRefText(r *admissionv1.ParamRef) string {
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
