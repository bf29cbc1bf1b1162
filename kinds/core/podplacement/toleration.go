package podplacement

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// ValidateTolerations checks tolerations. compare allows the operators Lt and Gt.
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
			errs = append(errs, check.OneOf(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
				corev1.TaintEffectNoExecute)...)
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
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt,
					corev1.TolerationOpGt})}
		}
		errs := check.Messages(t.Value, at.Child("value"), content.IsDecimalInteger(t.Value))
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, err.Error()))
		}
		return errs
	default:
		return field.ErrorList{field.NotSupported(operator, t.Operator,
			[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists})}
	}
	return nil
}
