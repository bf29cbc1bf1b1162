package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What workloads of other groups use of pods and claims.

// ValidateTemplateMeta checks labels and annotations of a template and nothing else.
func ValidateTemplateMeta(t *corev1.PodTemplateSpec, path *field.Path, allow PodAllowances) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, validatePodAnnotations(t.Annotations, &t.Spec, path.Child("annotations"), allow)...)
}

// DefaultClaim completes the claim template of a workload.
func DefaultClaim(c *corev1.PersistentVolumeClaim) { defaultClaim(c) }

// ValidateClaimSpec checks the claim template of a workload.
func ValidateClaimSpec(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	return validateClaimTemplateSpec(s, path)
}

// ClaimSpecWarnings are the Warning texts about a claim template.
func ClaimSpecWarnings(path *field.Path, s *corev1.PersistentVolumeClaimSpec) []string {
	var warnings []string
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", s.Resources.Requests}, {"limits", s.Resources.Limits}} {
		if size := part.list[corev1.ResourceStorage]; size.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				path.Child("resources", part.name).Key(string(corev1.ResourceStorage)), size.String()))
		}
	}
	return warnings
}

// ValidateContainerResource checks the name of a resource that containers use.
func ValidateContainerResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	return containerResource(name, path)
}
