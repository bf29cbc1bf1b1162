package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

func validateAffinity(a *corev1.Affinity, allow PodAllowances, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, ValidateNodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, allow.invalidNodeAffinityValue, at.Child(required))...)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			t, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(preferred).Index(i)
			errs = append(errs, validateWeight(t.Weight, at)...)
			// A preference with a value no label can have does no harm: it is never met.
			errs = append(errs, validateNodeTerm(&t.Preference, true, at.Child("preference"))...)
		}
	}
	both := func(required1 []corev1.PodAffinityTerm, preferred1 []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range required1 {
			errs = append(errs, validatePodTerm(&required1[i], allow.invalidAffinityLabelValue, at.Child(required).Index(i))...)
		}
		for i := range preferred1 {
			at := at.Child(preferred).Index(i)
			errs = append(errs, validateWeight(preferred1[i].Weight, at)...)
			errs = append(errs, validatePodTerm(&preferred1[i].PodAffinityTerm, allow.invalidAffinityLabelValue, at.Child("podAffinityTerm"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		both(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		both(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
	return errs
}

func validateWeight(w int32, at *field.Path) field.ErrorList {
	if w <= 0 || w > 100 {
		return field.ErrorList{field.Invalid(at.Child("weight"), w, "must be in the range 1-100")}
	}
	return nil
}

// ValidateNodeSelector checks which nodes are wanted. anyValue allows values that no label can have.
func ValidateNodeSelector(s *corev1.NodeSelector, anyValue bool, at *field.Path) field.ErrorList {
	at = at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, validateNodeTerm(&s.NodeSelectorTerms[i], anyValue, at.Index(i))...)
	}
	return errs
}

func validateNodeTerm(t *corev1.NodeSelectorTerm, anyValue bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range t.MatchExpressions {
		errs = append(errs, validateNodeExpression(&t.MatchExpressions[i], anyValue, at.Child("matchExpressions").Index(i))...)
	}
	for i := range t.MatchFields {
		errs = append(errs, validateNodeField(&t.MatchFields[i], at.Child("matchFields").Index(i))...)
	}
	return errs
}

func validateNodeExpression(r *corev1.NodeSelectorRequirement, anyValue bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metavalidation.ValidateLabelName(r.Key, at.Child("key"))...)
	if anyValue {
		return errs
	}
	for i, v := range r.Values {
		errs = append(errs, check.Messages(v, values.Index(i), validation.IsValidLabelValue(v))...)
	}
	return errs
}

// validateNodeField checks a requirement on a field of nodes. The only one is their name.
func validateNodeField(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(at.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, v := range r.Values {
		errs = append(errs, dnsName(v, at.Child("values").Index(i))...)
	}
	return errs
}

// podTermSelectors checks the two selectors of a term about other pods.
func podTermSelectors(t *corev1.PodAffinityTerm, anyValue bool, at *field.Path) field.ErrorList {
	options := metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValue}
	errs := metavalidation.ValidateLabelSelector(t.LabelSelector, options, at.Child("labelSelector"))
	return append(errs, metavalidation.ValidateLabelSelector(t.NamespaceSelector, options, at.Child("namespaceSelector"))...)
}

func validatePodTerm(t *corev1.PodAffinityTerm, anyValue bool, at *field.Path) field.ErrorList {
	errs := podTermSelectors(t, anyValue, at)
	for _, name := range t.Namespaces {
		errs = append(errs, check.Messages(name, at.Child("namespace"), apivalidation.ValidateNamespaceName(name, false))...)
	}
	errs = append(errs, validateLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

const keyInBoth = "exists in both matchLabelKeys and labelSelector"

// validateLabelKeys checks label keys whose values are taken from the pod itself. By now these keys have
// been merged into the selector, so a key that is there twice was there before.
func validateLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, l := range []struct {
		keys []string
		at   *field.Path
	}{{match, at.Child("matchLabelKeys")}, {mismatch, at.Child("mismatchLabelKeys")}} {
		if len(l.keys) > 0 && selector == nil {
			errs = append(errs, field.Forbidden(l.at, "must not be specified when labelSelector is not set"))
			continue
		}
		for i, key := range l.keys {
			errs = append(errs, metavalidation.ValidateLabelName(key, l.at.Index(i))...)
		}
	}
	if selector != nil {
		seen := map[string]bool{}
		for key := range selector.MatchLabels {
			seen[key] = true
		}
		for _, e := range selector.MatchExpressions {
			if i := lastIndex(match, e.Key); i >= 0 && seen[e.Key] {
				errs = append(errs, field.Invalid(at.Index(i), e.Key, keyInBoth))
			}
			seen[e.Key] = true
		}
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(at.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}

func lastIndex(list []string, s string) int {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == s {
			return i
		}
	}
	return -1
}

func validateSpread(constraints []corev1.TopologySpreadConstraint, list *field.Path, allow PodAllowances) field.ErrorList {
	var errs field.ErrorList
	for i := range constraints {
		c, at := &constraints[i], list.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), int64(c.MaxSkew), "must be greater than zero"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, oneOf(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		for _, other := range constraints[i+1:] {
			if c.TopologyKey == other.TopologyKey && c.WhenUnsatisfiable == other.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		if m := c.MinDomains; m != nil {
			at := at.Child("minDomains")
			if *m <= 0 {
				errs = append(errs, field.Invalid(at, int64(*m), "must be greater than zero"))
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				errs = append(errs, field.Invalid(at, *m, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
			}
		}
		errs = append(errs, oneOfIfSet(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		errs = append(errs, oneOfIfSet(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		if allow.invalidSpreadKeys {
			errs = append(errs, validateUnmergedKeys(c, at.Child("matchLabelKeys"))...)
		} else {
			errs = append(errs, validateLabelKeys(c.MatchLabelKeys, nil, c.LabelSelector, at)...)
		}
		if !allow.invalidSpreadSelector {
			errs = append(errs, metavalidation.ValidateLabelSelector(c.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
		}
	}
	return errs
}

// validateUnmergedKeys is the rule for pods from the time when label keys were not merged into the selector.
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

// ValidateTolerations checks which taints are tolerated. compare allows the operators Lt and Gt.
func ValidateTolerations(list []corev1.Toleration, path *field.Path, compare bool) field.ErrorList {
	var errs field.ErrorList
	for i, t := range list {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		errs = append(errs, validateTolerationValue(&t, at, compare)...)
		if t.Effect != "" {
			errs = append(errs, oneOf(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		}
	}
	return errs
}

func validateTolerationValue(t *corev1.Toleration, at *field.Path, compare bool) field.ErrorList {
	operator := at.Child("operator")
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) != 0 {
			return field.ErrorList{field.Invalid(operator, t.Value, strings.Join(msgs, ";"))}
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			return field.ErrorList{field.Invalid(operator, t.Value, "value must be empty when `operator` is 'Exists'")}
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if !compare {
			return field.ErrorList{field.NotSupported(operator, t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt})}
		}
		errs := check.Messages(t.Value, at.Child("value"), content.IsDecimalInteger(t.Value))
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, err.Error()))
		}
		return errs
	default:
		return field.ErrorList{field.NotSupported(operator, t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists})}
	}
	return nil
}
