package podplacement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// ValidateSpread checks topology spread constraints.
func ValidateSpread(constraints []corev1.TopologySpreadConstraint, list *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	for i := range constraints {
		c, at := &constraints[i], list.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), int64(c.MaxSkew), "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, check.OneOf(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		for _, other := range constraints[i+1:] {
			if c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
					fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if m := c.MinDomains; m != nil {
			at := at.Child("minDomains")
			if *m <= 0 {
				errs = append(errs, field.Invalid(at, int64(*m), "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at, *m,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, check.OneOfIfSet(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, check.OneOfIfSet(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)...)
		if allow.InvalidSpreadKeys {
			errs = append(errs, validateUnmergedKeys(c, at.Child("matchLabelKeys"))...)
		} else {
			errs = append(errs, ValidateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
		}
		if !allow.InvalidSpreadSelector {
			errs = append(errs, metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{},
				at.Child("labelSelector"))...)
		}
	}
	return errs
}

// validateUnmergedKeys checks the label keys of pods that were stored before label keys were merged into selectors.
func validateUnmergedKeys(c *corev1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
	if len(c.MatchLabelKeys) == 0 {
		return nil
	}
	var errs field.ErrorList
	inSelector := map[string]bool{}
	if s := c.LabelSelector; s == nil {
		errs = append(errs, field.Forbidden(at, "must not be specified when labelSelector is not set"))
	} else {
		for key := range s.MatchLabels {
			inSelector[key] = true
		}
		for _, e := range s.MatchExpressions {
			inSelector[e.Key] = true
		}
	}
	for i, key := range c.MatchLabelKeys {
		errs = append(errs, metavalidation.ValidateLabelName(key, at.Index(i))...)
		if inSelector[key] {
			errs = append(errs, field.Invalid(at.Index(i), key, keyInBoth))
		}
	}
	return errs
}
