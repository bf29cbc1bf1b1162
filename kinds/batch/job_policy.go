package batch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
)

func validateFailurePolicy(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var names []string
	for _, c := range slices.Concat(s.Template.Spec.Containers, s.Template.Spec.InitContainers) {
		names = append(names, c.Name)
	}
	rules := path.Child("rules")
	if n := len(s.PodFailurePolicy.Rules); n > maxRules {
		errs = append(errs, field.TooMany(rules, n, maxRules))
	}
	for i := range s.PodFailurePolicy.Rules {
		errs = append(errs, validateFailureRule(s, &s.PodFailurePolicy.Rules[i], rules.Index(i), names)...)
	}
	return errs
}

func validateFailureRule(s *batchv1.JobSpec, r *batchv1.PodFailurePolicyRule, path *field.Path, names []string) field.ErrorList {
	var errs field.ErrorList
	if r.Action == batchv1.PodFailurePolicyActionFailIndex {
		if s.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(path.Child("action"), r.Action, "requires the backoffLimitPerIndex to be set"))
		}
	} else {
		errs = append(errs, validateOneOf(r.Action, path.Child("action"), []batchv1.PodFailurePolicyAction{
			batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
			batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
		})...)
	}
	if r.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(r.OnExitCodes, path.Child("onExitCodes"), names)...)
	}
	errs = append(errs, validatePatterns(r.OnPodConditions, path.Child("onPodConditions"))...)
	switch {
	case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

// validateOneOf is check.OneOf with the text that Jobs have for an empty value.
func validateOneOf[S ~string](value S, path *field.Path, known []S) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", known))}
	case !slices.Contains(known, value):
		return field.ErrorList{field.NotSupported(path, value, known)}
	}
	return nil
}

func validatePatterns(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(patterns); n > maxPatterns {
		errs = append(errs, field.TooMany(path, n, maxPatterns))
	}
	for i, p := range patterns {
		errs = append(errs, check.Messages(string(p.Type), path.Index(i).Child("type"), utilvalidation.IsQualifiedName(string(p.Type)))...)
		errs = append(errs, validateOneOf(p.Status, path.Index(i).Child("status"),
			[]corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown})...)
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, path *field.Path, names []string) field.ErrorList {
	errs := validateOneOf(r.Operator, path.Child("operator"),
		[]batchv1.PodFailurePolicyOnExitCodesOperator{batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn})
	if n := r.ContainerName; n != nil && !slices.Contains(names, *n) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *n, "must be one of the container or initContainer names in the pod template"))
	}
	values := path.Child("values")
	if n := len(r.Values); n == 0 {
		errs = append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	} else if n > maxExitCodes {
		errs = append(errs, field.TooMany(values, n, maxExitCodes))
	}
	for i, v := range r.Values {
		if r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && v == 0 {
			errs = append(errs, field.Invalid(values.Index(i), v, "must not be 0 for the In operator"))
		}
		if slices.Contains(r.Values[:i], v) {
			errs = append(errs, field.Duplicate(values.Index(i), v))
		}
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := path.Child("rules")
	if n := len(s.SuccessPolicy.Rules); n == 0 {
		errs = append(errs, field.Required(rules, "at least one rules must be specified when the successPolicy is specified"))
	} else if n > maxRules {
		errs = append(errs, field.TooMany(rules, n, maxRules))
	}
	completions := ptr.Deref(s.Completions, 0)
	for i, r := range s.SuccessPolicy.Rules {
		errs = append(errs, validateSuccessRule(r, completions, rules.Index(i))...)
	}
	return errs
}

func validateSuccessRule(r batchv1.SuccessPolicyRule, completions int32, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		errs = append(errs, field.Required(path, "at least one of succeededCount or succeededIndexes must be specified"))
	}
	var total int32
	if list := r.SucceededIndexes; list != nil {
		path := path.Child("succeededIndexes")
		if len(*list) > maxSucceededTexts {
			errs = append(errs, field.TooLong(path, "", maxSucceededTexts))
		}
		intervals, err := parseIndexes(*list, completions)
		if err != nil {
			errs = append(errs, field.Invalid(path, *list, fmt.Sprintf("error parsing succeededIndexes: %s", err)))
		}
		for _, in := range intervals {
			total += in.last - in.first + 1
		}
	}
	if n := r.SucceededCount; n != nil {
		path := path.Child("succeededCount")
		errs = append(errs, check.NonNegative(int64(*n), path)...)
		if *n > completions {
			errs = append(errs, field.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
		}
		if r.SucceededIndexes != nil && *n > total {
			errs = append(errs, field.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
		}
	}
	return errs
}

// interval is a range of indexes, both ends included.
type interval struct{ first, last int32 }

// parseIndexes parses a list such as "1,3-5", which must be ascending and below the number of completions.
func parseIndexes(list string, completions int32) ([]interval, error) {
	if list == "" {
		return nil, nil
	}
	var intervals []interval
	for text := range strings.SplitSeq(list, ",") {
		in, err := parseInterval(text, completions)
		if err != nil {
			return nil, err
		}
		if n := len(intervals); n > 0 && intervals[n-1].last >= in.first {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", intervals[n-1].last, in.first)
		}
		intervals = append(intervals, in)
	}
	return intervals, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	var numbers []int
	for _, end := range ends {
		n, err := strconv.Atoi(end)
		if err != nil {
			return interval{}, fmt.Errorf("cannot convert string to integer for index: %q", end)
		}
		if n >= int(completions) {
			return interval{}, fmt.Errorf("too large index: %q", end)
		}
		numbers = append(numbers, n)
	}
	first, last := numbers[0], numbers[len(numbers)-1]
	if len(numbers) == 2 && first >= last {
		return interval{}, fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return interval{int32(first), int32(last)}, nil
}

// findOverlap returns an error for an index that is in both lists. It skips intervals that are malformed, which the check
// of their format reports.
func findOverlap(completed, failed string, completions int32) error {
	read := func(list string) []interval {
		var intervals []interval
		for text := range strings.SplitSeq(list, ",") {
			if in, err := parseInterval(text, completions); err == nil {
				intervals = append(intervals, in)
			}
		}
		return intervals
	}
	c, f := read(completed), read(failed)
	for len(c) > 0 && len(f) > 0 {
		if c[0].first <= f[0].last && f[0].first <= c[0].last {
			return fmt.Errorf("failedIndexes and completedIndexes overlap at index: %d", max(c[0].first, f[0].first))
		}
		if c[0].first <= f[0].first {
			c = c[1:]
		} else {
			f = f[1:]
		}
	}
	return nil
}
