// Package podplacement validates where pods may run: affinity, node selectors, topology spread constraints and tolerations.
package podplacement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// Allowances says which of today's rules about placement a stored pod may go on breaking.
type Allowances struct {
	InvalidPodLabelValue  bool // in terms about other pods
	InvalidNodeLabelValue bool // in required node affinity
	InvalidSpreadSelector bool
	InvalidSpreadKeys     bool
	ComparingTolerations  bool // the operators Lt and Gt
}

// ValidateAffinity checks the node and pod affinity of a pod.
func ValidateAffinity(a *corev1.Affinity, allow Allowances, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			errs = append(errs, ValidateNodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, allow.InvalidNodeLabelValue,
				at.Child(required))...)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			t, at := &n.PreferredDuringSchedulingIgnoredDuringExecution[i], at.Child(preferred).Index(i)
			errs = append(errs, validateWeight(t.Weight, at)...)
			// A preference with an invalid label value is allowed: it never matches.
			errs = append(errs, validateNodeTerm(&t.Preference, true, at.Child("preference"))...)
		}
	}
	both := func(required1 []corev1.PodAffinityTerm, preferred1 []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range required1 {
			errs = append(errs, validatePodTerm(&required1[i], allow.InvalidPodLabelValue, at.Child(required).Index(i))...)
		}
		for i := range preferred1 {
			at := at.Child(preferred).Index(i)
			errs = append(errs, validateWeight(preferred1[i].Weight, at)...)
			errs = append(errs, validatePodTerm(&preferred1[i].PodAffinityTerm, allow.InvalidPodLabelValue, at.Child("podAffinityTerm"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		both(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		both(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution,
			at.Child("podAntiAffinity"))
	}
	return errs
}

func validateWeight(w int32, at *field.Path) field.ErrorList {
	if w <= 0 || w > 100 {
		return field.ErrorList{field.Invalid(at.Child("weight"), w, "must be in the range 1-100")}
	}
	return nil
}

// ValidateNodeSelector checks a node selector. anyValue allows values that no label can have.
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

// validateNodeField checks a requirement on a field of nodes, of which only metadata.name is supported.
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
		errs = append(errs, check.DNSSubdomain(v, at.Child("values").Index(i))...)
	}
	return errs
}

// ValidateTermSelectors checks the label selector and namespace selector of a pod affinity term.
func ValidateTermSelectors(t *corev1.PodAffinityTerm, anyValue bool, at *field.Path) field.ErrorList {
	options := metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: anyValue}
	errs := metavalidation.ValidateLabelSelector(t.LabelSelector, options, at.Child("labelSelector"))
	return append(errs, metavalidation.ValidateLabelSelector(t.NamespaceSelector, options, at.Child("namespaceSelector"))...)
}

func validatePodTerm(t *corev1.PodAffinityTerm, anyValue bool, at *field.Path) field.ErrorList {
	errs := ValidateTermSelectors(t, anyValue, at)
	for _, name := range t.Namespaces {
		errs = append(errs, check.Messages(name, at.Child("namespace"), apivalidation.ValidateNamespaceName(name, false))...)
	}
	errs = append(errs, ValidateLabelKeys(t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector, at)...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
}

const keyInBoth = "exists in both matchLabelKeys and labelSelector"

// ValidateLabelKeys checks label keys whose values come from the pod itself. The keys have been merged into the
// selector before, so a key that is in it twice was in it already.
func ValidateLabelKeys(match, mismatch []string, selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
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
			errs = append(errs, field.Invalid(at.Child("matchLabelKeys").Index(i), key,
				"exists in both matchLabelKeys and mismatchLabelKeys"))
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
