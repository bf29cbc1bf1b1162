package admissionregistration

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

func staticWarning(name string, update bool) []string                                  { return nil }
func warnMutatingConfig(c, old *admissionv1.MutatingWebhookConfiguration) []string     { return nil }
func warnValidatingConfig(c, old *admissionv1.ValidatingWebhookConfiguration) []string { return nil }
func validateMutatingConfig(Compiler) func(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	return nil
}
func validateValidatingConfig(Compiler) func(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
	return nil
}
func validateValidatingPolicy(Compiler) func(c, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	return nil
}
func validateMutatingPolicy(Compiler) func(c, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	return nil
}
func validateValidatingBinding(c, old *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return nil
}
func validateMutatingBinding(c, old *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return nil
}
func validatePolicyStatus(c, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList { return nil }
func allowValidatingPolicy(_ context.Context, _ kind.Door, c, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	return nil
}
func allowMutatingPolicy(_ context.Context, _ kind.Door, c, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	return nil
}
func allowValidatingBinding(_ context.Context, _ kind.Door, c, old *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return nil
}
func allowMutatingBinding(_ context.Context, _ kind.Door, c, old *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return nil
}

// Compiler will be described here.
type Compiler interface{ Compile() }
