package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/defaulting"
)

// ValidatingAdmissionPolicies refuse objects by rules in CEL.
func ValidatingAdmissionPolicies(h Hooks) *kind.Def {
	type policy = admissionv1.ValidatingAdmissionPolicy
	r := policyResource(h, validatingSpec)
	r.Kind, r.Plural = "ValidatingAdmissionPolicy", "validatingadmissionpolicies"
	r.Spec = func(p *policy) any { return &p.Spec }
	r.Status = func(p *policy) any { return &p.Status }
	r.Validate = h.validateValidatingPolicy
	r.Subs = []kind.Sub[policy]{{
		Name:     "status",
		Reset:    []string{"spec", "metadata"},
		Prepare:  func(p, old *policy) { metav1.ResetObjectMetaForStatus(p, old) },
		Validate: validatePolicyStatus,
	}}
	r.Columns = policyColumns(kind.Column[policy]{Name: "Validations", Type: "integer", Description: "Validations indicates the number of validation rules defined in this configuration",
		Value: func(p *policy) any { return int64(len(p.Spec.Validations)) }})
	return kind.Define(r)
}

// MutatingAdmissionPolicies change objects by rules in CEL.
func MutatingAdmissionPolicies(h Hooks) *kind.Def {
	type policy = admissionv1.MutatingAdmissionPolicy
	r := policyResource(h, mutatingSpec)
	r.Kind, r.Plural = "MutatingAdmissionPolicy", "mutatingadmissionpolicies"
	r.Older = kind.SameLayout("v1beta1", "v1alpha1")
	r.Spec = func(p *policy) any { return &p.Spec }
	r.Validate = h.validateMutatingPolicy
	r.Columns = policyColumns(kind.Column[policy]{Name: "Mutations", Type: "integer", Description: "Mutation indicates the number of mutations rules defined in this configuration",
		Value: func(p *policy) any { return int64(len(p.Spec.Mutations)) }})
	return kind.Define(r)
}

// policySpec is what the specs of both kinds of policies share. Its fields are those of the policy.
type policySpec struct {
	failurePolicy **admissionv1.FailurePolicyType
	paramKind     *admissionv1.ParamKind
	match         *admissionv1.MatchResources
	conditions    []admissionv1.MatchCondition
	variables     []admissionv1.Variable
	mutates       bool
}

func validatingSpec(p *admissionv1.ValidatingAdmissionPolicy) policySpec {
	s := &p.Spec
	return policySpec{&s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables, false}
}

func mutatingSpec(p *admissionv1.MutatingAdmissionPolicy) policySpec {
	s := &p.Spec
	return policySpec{&s.FailurePolicy, s.ParamKind, s.MatchConstraints, s.MatchConditions, s.Variables, true}
}

// policyResource returns what both kinds of policies share.
func policyResource[T any, P interface {
	*T
	kind.Object
}](h Hooks, spec func(*T) policySpec) kind.Resource[T] {
	return kind.Resource[T]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: admissionv1.GroupName, Version: "v1"}, Scope: kind.Cluster,
			Categories:              []string{"api-extensions"},
			Generation:              true,
			RequiresResourceVersion: true,
		},
		AnyFinalizer: true,
		Default: func(p *T) {
			s := spec(p)
			defaulting.IfNil(s.failurePolicy, admissionv1.Fail)
			defaultMatch(s.match)
		},
		Allow: func(ctx context.Context, d kind.Server, p, old *T) field.ErrorList {
			var was *admissionv1.ParamKind
			if old != nil {
				was = spec(old).paramKind
			}
			return h.allowParamKind(ctx, d, spec(p).paramKind, was)
		},
		Warn: func(p, old *T) []string { return staticWarning(P(p).GetName(), old != nil) },
	}
}

// policyColumns returns the columns of a kind of policies, one of which counts its rules.
func policyColumns[T any, P interface {
	*T
	kind.Object
}](rules kind.Column[T]) []kind.Column[T] {
	return []kind.Column[T]{
		kind.NameColumn[T, P](),
		rules,
		{Name: "ParamKind", Description: "ParamKind specifies the kind of resources used to parameterize this policy", Value: func(p *T) any {
			k := paramKindOf(P(p))
			if k == nil {
				return "<unset>"
			}
			return k.APIVersion + "/" + k.Kind
		}},
		kind.AgeColumn[T, P](),
	}
}

// paramKindOf returns the kind of the parameters of a policy; nil if it has none.
func paramKindOf(policy kind.Object) *admissionv1.ParamKind {
	switch p := policy.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return p.Spec.ParamKind
	case *admissionv1.MutatingAdmissionPolicy:
		return p.Spec.ParamKind
	}
	return nil
}
