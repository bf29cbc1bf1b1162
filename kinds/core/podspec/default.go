package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/volumesource"
	"proa.dev/kinds/lib/defaulting"
)

// DefaultTemplate fills in what a pod template leaves out.
func DefaultTemplate(t *corev1.PodTemplateSpec) { Default(&t.Spec) }

// Default fills in what a pod spec leaves out, of a pod or of a template. Pods get further defaults in podkind.
func Default(s *corev1.PodSpec) {
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	defaulting.IfZero(&s.DNSPolicy, corev1.DNSClusterFirst)
	defaulting.IfZero(&s.RestartPolicy, corev1.RestartPolicyAlways)
	defaulting.IfZero(&s.SchedulerName, corev1.DefaultSchedulerName)
	defaulting.IfNil(&s.SecurityContext, corev1.PodSecurityContext{})
	defaulting.IfNil(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	for i := range s.Volumes {
		volumesource.Default(&s.Volumes[i])
	}
	for _, c := range containerspec.All(s) {
		containerspec.Default(c)
	}
	defaulting.RoundUp(s.Overhead)
	defaulting.RoundUpRequirements(s.Resources)
}
