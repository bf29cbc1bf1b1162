package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TemplateAllowances returns the rules that an updated template may go on breaking. old is nil on create.
func TemplateAllowances(old *corev1.PodTemplateSpec) Allowances {
	if old == nil {
		return Allowances{}
	}
	return AllowancesOf(&old.Spec, &old.ObjectMeta)
}

// ValidateTemplate checks the pod template of a workload.
func ValidateTemplate(t *corev1.PodTemplateSpec, path *field.Path, allow Allowances) field.ErrorList {
	spec := path.Child("spec")
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	errs = append(errs, ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"), allow)...)
	errs = append(errs, Validate(&t.Spec, nil, spec, allow)...)
	errs = append(errs, ValidateSeccompAnnotations(&t.ObjectMeta, &t.Spec, spec)...)
	errs = append(errs, ValidateAppArmorAnnotations(&t.ObjectMeta, &t.Spec, spec)...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

// ValidateReplicaTemplate checks the pod template of a workload that keeps replicas running: its labels must match
// the workload's selector and its restart policy must be Always. owner is the kind of the workload, for the error.
func ValidateReplicaTemplate(t *corev1.PodTemplateSpec, selector labels.Selector, path *field.Path, owner string,
	allow Allowances) field.ErrorList {
	if t == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if selector != nil && !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, ValidateTemplate(t, path, allow)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"),
			fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", owner)))
	}
	return errs
}

// TemplateWarnings returns the warnings about a template at path. old is nil on create.
func TemplateWarnings(path *field.Path, t, _ *corev1.PodTemplateSpec) []string {
	if t == nil {
		return nil
	}
	return Warnings(path, &t.Spec, &t.ObjectMeta)
}

// DropDisabledTemplateFields is DropDisabledFields for a template.
func DropDisabledTemplateFields(t, old *corev1.PodTemplateSpec) {
	if t == nil {
		return
	}
	var oldSpec *corev1.PodSpec
	if old != nil {
		oldSpec = &old.Spec
	}
	DropDisabledFields(&t.Spec, t.Annotations, oldSpec)
}

// ValidateTemplateMeta checks only the labels and annotations of a template.
func ValidateTemplateMeta(t *corev1.PodTemplateSpec, path *field.Path, allow Allowances) field.ErrorList {
	errs := metavalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"), allow)...)
}

// NameWarnings warns about the name of a workload that is no DNS label, and so cannot be the hostname of its pods.
func NameWarnings(name string) []string {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
	}
	return nil
}
