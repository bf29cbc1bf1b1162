package policy

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// PodDisruptionBudgets bound how many pods may be disrupted at once.
func PodDisruptionBudgets() *kind.Def {
	return kind.Define(kind.Resource[policyv1.PodDisruptionBudget]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
			Plural:           "poddisruptionbudgets", Short: []string{"pdb"},
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Spec:         func(b *policyv1.PodDisruptionBudget) any { return &b.Spec },
		Status:       func(b *policyv1.PodDisruptionBudget) any { return &b.Status },
		Name:         check.PathSegment,
		AnyFinalizer: true,
		Prepare:      preparePodDisruptionBudget,
		Validate:     validatePodDisruptionBudget,
		Columns: []kind.Column[policyv1.PodDisruptionBudget]{
			kind.NameColumn[policyv1.PodDisruptionBudget](),
			{Name: "Min Available", Description: "The minimum number of pods that must be available.",
				Value: func(b *policyv1.PodDisruptionBudget) any { return orNone(b.Spec.MinAvailable) }},
			{Name: "Max Unavailable", Description: "The maximum number of pods that may be unavailable.",
				Value: func(b *policyv1.PodDisruptionBudget) any { return orNone(b.Spec.MaxUnavailable) }},
			{Name: "Allowed Disruptions", Type: "integer", Description: "Calculated number of pods that may be disrupted at this time.",
				Value: func(b *policyv1.PodDisruptionBudget) any { return int64(b.Status.DisruptionsAllowed) }},
			kind.AgeColumn[policyv1.PodDisruptionBudget](),
		},
		Subs: []kind.Sub[policyv1.PodDisruptionBudget]{{Name: "status", Validate: validatePodDisruptionBudgetStatus}},
	})
}

func orNone(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

// marker is a label key by which v1beta1 expressed an empty selector; it must not be combined with other
// requirements.
const marker = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

func preparePodDisruptionBudget(b, old *policyv1.PodDisruptionBudget) {
	if old != nil && equality.Semantic.DeepEqual(old.Spec.Selector, b.Spec.Selector) {
		return
	}
	s := b.Spec.Selector
	exists := func(op metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: marker, Operator: op}}}
	}
	if s == nil || equality.Semantic.DeepEqual(s, exists(metav1.LabelSelectorOpExists)) ||
		equality.Semantic.DeepEqual(s, exists(metav1.LabelSelectorOpDoesNotExist)) {
		return
	}
	delete(s.MatchLabels, marker)
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == marker })
}

func validatePodDisruptionBudget(b, old *policyv1.PodDisruptionBudget) field.ErrorList {
	var errs field.ErrorList
	s, path := &b.Spec, field.NewPath("spec")
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, check.GoFields(*s), "minAvailable and maxUnavailable cannot be both set"))
	}
	for _, n := range []struct {
		value *intstr.IntOrString
		path  *field.Path
	}{{s.MinAvailable, path.Child("minAvailable")}, {s.MaxUnavailable, path.Child("maxUnavailable")}} {
		if n.value != nil {
			errs = append(errs, check.IntOrPercent(*n.value, n.path)...)
			errs = append(errs, check.AtMost100Percent(*n.value, n.path)...)
		}
	}
	tolerant := old != nil && old.Spec.Selector != nil &&
		len(metavalidation.ValidateLabelSelector(old.Spec.Selector, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0
	errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector,
		metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: tolerant}, path.Child("selector"))...)
	if p := s.UnhealthyPodEvictionPolicy; p != nil && *p != policyv1.IfHealthyBudget && *p != policyv1.AlwaysAllow {
		errs = append(errs, field.NotSupported(path.Child("unhealthyPodEvictionPolicy"), *p,
			[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}))
	}
	return errs
}

func validatePodDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path := field.NewPath("status")
	errs := metavalidation.ValidateConditions(b.Status.Conditions, path.Child("conditions"))
	errs = append(errs, check.NonNegative(int64(b.Status.DisruptionsAllowed), path.Child("disruptionsAllowed"))...)
	errs = append(errs, check.NonNegative(int64(b.Status.CurrentHealthy), path.Child("currentHealthy"))...)
	errs = append(errs, check.NonNegative(int64(b.Status.DesiredHealthy), path.Child("desiredHealthy"))...)
	return append(errs, check.NonNegative(int64(b.Status.ExpectedPods), path.Child("expectedPods"))...)
}
