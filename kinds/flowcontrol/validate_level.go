package flowcontrol

import (
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"proa.dev/kinds/lib/check"
)

const maxQueues = 10_000_000

// keepZero is an annotation of an older version, which has no meaning in this one.
const keepZero = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

func validatePriorityLevel(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	path, spec := field.NewPath("spec"), &l.Spec
	var errs field.ErrorList
	if _, ok := l.Annotations[keepZero]; ok {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"),
			fmt.Sprintf("annotation '%s' is forbidden", keepZero)))
	}
	exempt := flowcontrolv1.PriorityLevelEnablementExempt
	if (l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (spec.Type == exempt) {
		errs = append(errs, field.Invalid(path.Child("type"), spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	limited := flowcontrolv1.PriorityLevelEnablementLimited
	switch {
	case spec.Type == exempt && spec.Exempt != nil:
		errs = append(errs, validateShares(spec.Exempt.NominalConcurrencyShares, path.Child("exempt"))...)
		errs = append(errs, validatePercent(spec.Exempt.LendablePercent, path.Child("exempt"))...)
	case spec.Type == limited && spec.Limited != nil:
		errs = append(errs, validateLimited(spec.Limited, path.Child("limited"))...)
	case spec.Type != "" && spec.Type != exempt && spec.Type != limited:
		errs = append(errs, field.NotSupported(path.Child("type"), spec.Type, []flowcontrolv1.PriorityLevelEnablement{exempt, limited}))
	}
	errs = append(errs, validateFixedLevel(l, path)...)
	errs = append(errs, validatePriorityLevelStatus(l, nil)...)
	return append(errs, validateMembers(spec, path)...)
}

// validateFixedLevel refuses changes of the mandatory levels.
func validateFixedLevel(l *flowcontrolv1.PriorityLevelConfiguration, path *field.Path) field.ErrorList {
	for _, fixed := range MandatoryLevels() {
		if fixed.Name != l.Name {
			continue
		}
		have, text := l.Spec.DeepCopy(), "spec of '%s' must equal the fixed value"
		if l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			have.Exempt, text = fixed.Spec.Exempt, "spec of '%s' except the 'spec.exempt' field must equal the fixed value"
		}
		if !equality.Semantic.DeepEqual(*have, fixed.Spec) {
			return field.ErrorList{field.Invalid(path, check.GoFields(l.Spec), fmt.Sprintf(text, l.Name))}
		}
	}
	return nil
}

// validateMembers checks that exactly the members of a type are set. Its errors are reported last.
func validateMembers(s *flowcontrolv1.PriorityLevelConfigurationSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Exempt != nil && s.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		errs = append(errs, field.Forbidden(path.Child("exempt"), ""))
	}
	errs = append(errs, validateMember(s.Limited != nil, s.Type == flowcontrolv1.PriorityLevelEnablementLimited, path.Child("limited"))...)
	if s.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), ""))
	}
	if s.Limited != nil {
		r, at := &s.Limited.LimitResponse, path.Child("limited", "limitResponse")
		errs = append(errs, validateMember(r.Queuing != nil, r.Type == flowcontrolv1.LimitResponseTypeQueue, at.Child("queuing"))...)
		if r.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
	}
	return errs
}

func validateMember(is, should bool, path *field.Path) field.ErrorList {
	switch {
	case is && !should:
		return field.ErrorList{field.Forbidden(path, "")}
	case should && !is:
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

func validateShares(n *int32, path *field.Path) field.ErrorList {
	if n == nil || *n >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("nominalConcurrencyShares"), *n, "must be a non-negative integer")}
}

func validatePercent(n *int32, path *field.Path) field.ErrorList {
	if n == nil || *n >= 0 && *n <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("lendablePercent"), *n, "must be between 0 and 100, inclusive")}
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := validateShares(l.NominalConcurrencyShares, path)
	r, at := &l.LimitResponse, path.Child("limitResponse")
	types := []flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}
	switch {
	case r.Type == flowcontrolv1.LimitResponseTypeQueue && r.Queuing != nil:
		errs = append(errs, validateQueuing(r.Queuing, at.Child("queuing"))...)
	case r.Type != "" && !slices.Contains(types, r.Type):
		errs = append(errs, field.NotSupported(at.Child("type"), r.Type, types))
	}
	errs = append(errs, validatePercent(l.LendablePercent, path)...)
	if n := l.BorrowingLimitPercent; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("borrowingLimitPercent"), *n, "if specified, must be a non-negative integer"))
	}
	return errs
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive"))
	}
	if q.Queues <= 0 {
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, "must be positive"))
	} else if q.Queues > maxQueues {
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues)))
	}
	hand := path.Child("handSize")
	switch {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits:
		errs = append(errs, field.Invalid(hand, q.HandSize,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits)))
	}
	return errs
}

func validatePriorityLevelStatus(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	types := make([]string, len(l.Status.Conditions))
	for i, c := range l.Status.Conditions {
		types[i] = string(c.Type)
	}
	return validateTypes(types)
}
