package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// notNegative is what every kind says about a number below zero.
const notNegative = apivalidation.IsNegativeErrorMsg

// AllowTemplate derives what a new version of a template may go on doing from what the old one did.
// old is nil on create.
func AllowTemplate(old *corev1.PodTemplateSpec) PodAllowances {
	if old == nil {
		return PodAllowances{}
	}
	return allowances(&old.Spec, &old.ObjectMeta)
}

// ValidatePodTemplateSpec checks the template of pods in a workload.
func ValidatePodTemplateSpec(t *corev1.PodTemplateSpec, path *field.Path, allow PodAllowances) field.ErrorList {
	spec := path.Child("spec")
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, validatePodAnnotations(t.Annotations, &t.Spec, path.Child("annotations"), allow)...)
	errs = append(errs, validatePodSpec(&t.Spec, nil, spec, allow)...)
	errs = append(errs, validateSeccompAnnotations(&t.ObjectMeta, &t.Spec, spec)...)
	errs = append(errs, validateAppArmorAnnotations(&t.ObjectMeta, &t.Spec, spec)...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// ValidateReplicaTemplate checks the template of a workload that keeps replicas running: its labels must
// match the workload's selector and its pods must restart. owner is the kind, for the text.
func ValidateReplicaTemplate(t *corev1.PodTemplateSpec, selector labels.Selector, path *field.Path, owner string, allow PodAllowances) field.ErrorList {
	if t == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if selector != nil && !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, ValidatePodTemplateSpec(t, path, allow)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", owner)))
	}
	return errs
}

// PodTemplateWarnings are the Warning texts about a template at path. old is nil on create.
func PodTemplateWarnings(path *field.Path, t, _ *corev1.PodTemplateSpec) []string {
	if t == nil {
		return nil
	}
	return podWarnings(path, &t.Spec, &t.ObjectMeta)
}

// DropDisabledTemplateFields removes the fields of features that are off, unless old uses them already.
func DropDisabledTemplateFields(t, old *corev1.PodTemplateSpec) {
	if t == nil {
		return
	}
	var oldSpec *corev1.PodSpec
	if old != nil {
		oldSpec = &old.Spec
	}
	dropDisabledFields(&t.Spec, t.Annotations, oldSpec)
}
