package apps

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
	"proa.dev/kinds/core"
)

// fill sets what is absent.
func fill[V any](field **V, value V) {
	if *field == nil {
		*field = &value
	}
}

func count(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func step(n *intstr.IntOrString) intstr.IntOrString {
	if n == nil {
		return intstr.IntOrString{}
	}
	return *n
}

// amount is a number or the number of percent.
func amount(n intstr.IntOrString) int {
	if percent, ok := check.Percent(n); ok {
		return percent
	}
	return n.IntValue()
}

// warnName warns of names that pods cannot carry on.
func warnName(name string) []string {
	if msgs := utilvalidation.IsDNS1123Label(name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
	}
	return nil
}

func isEmpty(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// validateSelected checks selector and template of a workload that keeps replicas.
func validateSelected(s *metav1.LabelSelector, t, old *corev1.PodTemplateSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	path := spec.Child("selector")
	if s == nil {
		errs = append(errs, field.Required(path, ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)...)
		if isEmpty(s) {
			// Replica sets say so too.
			errs = append(errs, field.Invalid(path, s, "empty selector is invalid for deployment"))
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(path, s, "invalid label selector"))
	}
	return append(errs, core.ValidateReplicaTemplate(t, selector, spec.Child("template"), "ReplicaSet", core.AllowTemplate(old))...)
}

// alwaysRuns refuses pods that may end.
func alwaysRuns(s *corev1.PodSpec, path *field.Path, owner string) field.ErrorList {
	var errs field.ErrorList
	if s.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("restartPolicy"), s.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("activeDeadlineSeconds"), "activeDeadlineSeconds in "+owner+" is not Supported"))
	}
	return errs
}

// number is a named count of a status.
type number struct {
	name  string
	value int32
}

func nonNegatives(path *field.Path, numbers []number) field.ErrorList {
	var errs field.ErrorList
	for _, n := range numbers {
		errs = append(errs, check.NonNegative(int64(n.value), path.Child(n.name))...)
	}
	return errs
}

func atMost(path *field.Path, limit int32, text string, numbers []number) field.ErrorList {
	var errs field.ErrorList
	for _, n := range numbers {
		if n.value > limit {
			errs = append(errs, field.Invalid(path.Child(n.name), n.value, text))
		}
	}
	return errs
}

func notDecremented(now, was *int32, path *field.Path) field.ErrorList {
	if was == nil || now != nil && *now >= *was {
		return nil
	}
	return field.ErrorList{field.Invalid(path, count(now), "cannot be decremented")}
}
