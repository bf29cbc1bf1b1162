// Package admissionregistration holds the kinds of the admissionregistration.k8s.io group.
package admissionregistration

import "proa.dev/kinds/kind"

// All lists the kinds of the group. compile checks the CEL expressions of objects; nil accepts every expression.
func All(compile Compiler) []*kind.Def {
	return []*kind.Def{
		MutatingAdmissionPolicies(compile),
		MutatingAdmissionPolicyBindings(),
		MutatingWebhookConfigurations(compile),
		ValidatingAdmissionPolicies(compile),
		ValidatingAdmissionPolicyBindings(),
		ValidatingWebhookConfigurations(compile),
	}
}
