package apps

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/check"
)

// intOrPercent returns a number, or the number of a percentage.
func intOrPercent(n intstr.IntOrString) int {
	if percent, ok := check.Percent(n); ok {
		return percent
	}
	return n.IntValue()
}

func isEmpty(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// validateSelected checks the selector and template of a workload that keeps replicas running.
func validateSelected(s *metav1.LabelSelector, t, old *corev1.PodTemplateSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	path := spec.Child("selector")
	if s == nil {
		errs = append(errs, field.Required(path, ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)...)
		if isEmpty(s) {
			// Replica sets have the same message.
			errs = append(errs, field.Invalid(path, s, "empty selector is invalid for deployment"))
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(path, s, "invalid label selector"))
	}
	return append(errs, podspec.ValidateReplicaTemplate(t, selector, spec.Child("template"), "ReplicaSet",
		podspec.TemplateAllowances(old))...)
}

// validateAlwaysRuns refuses restart policies and deadlines of pods that may end.
func validateAlwaysRuns(s *corev1.PodSpec, path *field.Path, owner string) field.ErrorList {
	var errs field.ErrorList
	if s.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("restartPolicy"), s.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+owner+" is not Supported"))
	}
	return errs
}

// namedCount is a named count in a status.
type namedCount struct {
	name  string
	value int32
}

func validateNonNegative(path *field.Path, numbers []namedCount) field.ErrorList {
	var errs field.ErrorList
	for _, n := range numbers {
		errs = append(errs, check.NonNegative(int64(n.value), path.Child(n.name))...)
	}
	return errs
}

func validateAtMost(path *field.Path, limit int32, text string, numbers []namedCount) field.ErrorList {
	var errs field.ErrorList
	for _, n := range numbers {
		if n.value > limit {
			errs = append(errs, field.Invalid(path.Child(n.name), n.value, text))
		}
	}
	return errs
}

func validateNotDecremented(now, was *int32, path *field.Path) field.ErrorList {
	if was == nil || now != nil && *now >= *was {
		return nil
	}
	return field.ErrorList{field.Invalid(path, ptr.Deref(now, 0), "cannot be decremented")}
}
