// Package admissionregistration holds the kinds of the admissionregistration.k8s.io group.
package admissionregistration

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All(h Hooks) []*kind.Def {
	return []*kind.Def{
		MutatingAdmissionPolicies(h),
		MutatingAdmissionPolicyBindings(h),
		MutatingWebhookConfigurations(h),
		ValidatingAdmissionPolicies(h),
		ValidatingAdmissionPolicyBindings(h),
		ValidatingWebhookConfigurations(h),
	}
}
