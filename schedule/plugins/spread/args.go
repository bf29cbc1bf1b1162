package spread

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/schedule/framework"
)

// New returns the plugin PodTopologySpread.
func New(deps framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.PodTopologySpreadArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	if args.DefaultingType == "" {
		args.DefaultingType = configv1.SystemDefaulting
	}
	if err := checkArguments(&args).ToAggregate(); err != nil {
		return framework.Plugin{}, err
	}
	if args.DefaultingType == configv1.SystemDefaulting {
		return newPlugin(systemDefaults(), deps.Views), nil
	}
	return newPlugin(arguments{Defaults: args.DefaultConstraints}, deps.Views), nil
}

func checkArguments(args *configv1.PodTopologySpreadArgs) (errs field.ErrorList) {
	at := field.NewPath("defaultingType")
	switch {
	case args.DefaultingType != configv1.SystemDefaulting && args.DefaultingType != configv1.ListDefaulting:
		errs = append(errs, field.NotSupported(at, args.DefaultingType,
			[]string{string(configv1.SystemDefaulting), string(configv1.ListDefaulting)}))
	case args.DefaultingType == configv1.SystemDefaulting && len(args.DefaultConstraints) > 0:
		errs = append(errs, field.Invalid(at, args.DefaultingType, "when .defaultConstraints are not empty"))
	}
	list := field.NewPath("defaultConstraints")
	for i := range args.DefaultConstraints {
		errs = append(errs, checkDefaultConstraint(&args.DefaultConstraints[i], list.Index(i))...)
		for j := range i {
			a, b := &args.DefaultConstraints[i], &args.DefaultConstraints[j]
			if a.TopologyKey == b.TopologyKey && a.WhenUnsatisfiable == b.WhenUnsatisfiable {
				errs = append(errs, field.Duplicate(list.Index(i), fmt.Sprintf("{%v, %v}", a.TopologyKey, a.WhenUnsatisfiable)))
				break
			}
		}
	}
	return errs
}

func checkDefaultConstraint(c *corev1.TopologySpreadConstraint, at *field.Path) (errs field.ErrorList) {
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "not in valid range (0, inf)"))
	}
	if c.TopologyKey == "" {
		errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
	} else {
		errs = append(errs, metav1validation.ValidateLabelName(c.TopologyKey, at.Child("topologyKey"))...)
	}
	switch c.WhenUnsatisfiable {
	case corev1.DoNotSchedule, corev1.ScheduleAnyway:
	case "":
		errs = append(errs, field.Required(at.Child("whenUnsatisfiable"), "can not be empty"))
	default:
		errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
			[]string{string(corev1.DoNotSchedule), string(corev1.ScheduleAnyway)}))
	}
	if c.LabelSelector != nil {
		errs = append(errs, field.Forbidden(at.Child("labelSelector"),
			"constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}
