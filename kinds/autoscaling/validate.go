package autoscaling

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

const (
	maxWindowSeconds = 3600
	maxPeriodSeconds = 1800
)

// apiVersionRule tells what a reference may leave out of its API version.
type apiVersionRule struct{ anything, noGroup bool }

func validateHPA(h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	s, path := &h.Spec, field.NewPath("spec")
	var errs, last field.ErrorList
	if n := s.MinReplicas; n != nil && *n < 0 {
		last = append(last, field.Invalid(path.Child("minReplicas"), *n, "must be greater than or equal to 0"))
	}
	if s.MaxReplicas == 0 {
		last = append(last, field.Required(path.Child("maxReplicas"), ""))
	} else if s.MaxReplicas < 0 {
		last = append(last, field.Invalid(path.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to 1"))
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateReference(s.ScaleTargetRef, path.Child("scaleTargetRef"), targetRule(h, old))...)
	errs = append(errs, validateMetrics(s, path.Child("metrics"), metricRule(old))...)
	if b := s.Behavior; b != nil {
		errs = append(errs, validateRules(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return append(errs, last...)
}

func targetRule(h, old *autoscalingv2.HorizontalPodAutoscaler) apiVersionRule {
	ref := h.Spec.ScaleTargetRef
	if old != nil && old.Spec.ScaleTargetRef.APIVersion == ref.APIVersion && old.Spec.ScaleTargetRef.Kind == ref.Kind {
		return apiVersionRule{anything: true}
	}
	return apiVersionRule{noGroup: ref.Kind == "ReplicationController"}
}

func metricRule(old *autoscalingv2.HorizontalPodAutoscaler) apiVersionRule {
	rule := apiVersionRule{noGroup: true}
	if old == nil {
		return rule
	}
	for _, m := range old.Spec.Metrics {
		if m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && apiVersionError(m.Object.DescribedObject, rule) != nil {
			rule.anything = true
		}
	}
	return rule
}

func apiVersionError(ref autoscalingv2.CrossVersionObjectReference, rule apiVersionRule) error {
	if rule.anything {
		return nil
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err == nil && !rule.noGroup && gv.Group == "" {
		err = fmt.Errorf("apiVersion must specify API group")
	}
	return err
}

func validateReference(ref autoscalingv2.CrossVersionObjectReference, path *field.Path, rule apiVersionRule) field.ErrorList {
	errs := check.RequiredPathSegment(ref.Kind, path.Child("kind"), "")
	errs = append(errs, check.RequiredPathSegment(ref.Name, path.Child("name"), "")...)
	if err := apiVersionError(ref, rule); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

func validateRules(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w, "must be greater than or equal to zero"))
	} else if w != nil && *w > maxWindowSeconds {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w,
			fmt.Sprintf("must be less than or equal to %v", maxWindowSeconds)))
	}
	if p := r.SelectPolicy; p != nil && *p != autoscalingv2.MaxChangePolicySelect && *p != autoscalingv2.MinChangePolicySelect &&
		*p != autoscalingv2.DisabledPolicySelect {
		errs = append(errs, field.NotSupported(path.Child("selectPolicy"), *p,
			[]autoscalingv2.ScalingPolicySelect{autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect,
				autoscalingv2.MinChangePolicySelect}))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		path := path.Child("policies").Index(i)
		if p.Type != autoscalingv2.PodsScalingPolicy && p.Type != autoscalingv2.PercentScalingPolicy {
			errs = append(errs, field.NotSupported(path.Child("type"), p.Type,
				[]autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}))
		}
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(path.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		}
		if p.PeriodSeconds > maxPeriodSeconds {
			errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds,
				fmt.Sprintf("must be less than or equal to %v", maxPeriodSeconds)))
		}
	}
	if t := r.Tolerance; t != nil && t.Cmp(resource.Quantity{}) < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), t.String(), validation.IsNegativeErrorMsg))
	}
	return errs
}

func validateHPAStatus(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	for i, c := range h.Status.Conditions {
		errs = append(errs, check.NonNegativePtr(c.ObservedGeneration, path.Child("conditions").Index(i).Child("observedGeneration"))...)
	}
	errs = append(errs, check.NonNegative(int64(h.Status.CurrentReplicas), path.Child("currentReplicas"))...)
	return append(errs, check.NonNegative(int64(h.Status.DesiredReplicas), path.Child("desiredReplicas"))...)
}
