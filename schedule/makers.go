package schedule

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

func makeSpread(deps Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.PodTopologySpreadArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	if args.DefaultingType == "" {
		args.DefaultingType = configv1.SystemDefaulting
	}
	if err := checkSpread(&args).ToAggregate(); err != nil {
		return Plugin{}, err
	}
	if args.DefaultingType == configv1.SystemDefaulting {
		return TopologySpread(SystemSpread(), deps.Views), nil
	}
	return TopologySpread(SpreadArgs{Defaults: args.DefaultConstraints}, deps.Views), nil
}

func checkSpread(args *configv1.PodTopologySpreadArgs) (errs field.ErrorList) {
	at := field.NewPath("defaultingType")
	switch {
	case args.DefaultingType != configv1.SystemDefaulting && args.DefaultingType != configv1.ListDefaulting:
		errs = append(errs, field.NotSupported(at, args.DefaultingType, []string{string(configv1.SystemDefaulting), string(configv1.ListDefaulting)}))
	case args.DefaultingType == configv1.SystemDefaulting && len(args.DefaultConstraints) > 0:
		errs = append(errs, field.Invalid(at, args.DefaultingType, "when .defaultConstraints are not empty"))
	}
	list := field.NewPath("defaultConstraints")
	for i := range args.DefaultConstraints {
		errs = append(errs, checkSpreadDefault(&args.DefaultConstraints[i], list.Index(i))...)
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

func checkSpreadDefault(c *corev1.TopologySpreadConstraint, at *field.Path) (errs field.ErrorList) {
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
		errs = append(errs, field.Forbidden(at.Child("labelSelector"), "constraint must not define a selector, as they deduced for each pod"))
	}
	return errs
}

func makePodAffinity(deps Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.InterPodAffinityArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	if args.HardPodAffinityWeight == nil {
		args.HardPodAffinityWeight = new(int32(1))
	}
	if w := *args.HardPodAffinityWeight; w < 0 || w > 100 {
		return Plugin{}, field.Invalid(field.NewPath("hardPodAffinityWeight"), w, "not in valid range [0, 100]")
	}
	return PodAffinity(PodAffinityArgs{HardWeight: int64(*args.HardPodAffinityWeight), OwnOnly: args.IgnorePreferredTermsOfExistingPods}, deps.Views), nil
}

func makePreemption(deps Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.DefaultPreemptionArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	percentage, absolute := int32(10), int32(100)
	if args.MinCandidateNodesPercentage != nil {
		percentage = *args.MinCandidateNodesPercentage
	}
	if args.MinCandidateNodesAbsolute != nil {
		absolute = *args.MinCandidateNodesAbsolute
	}
	var errs field.ErrorList
	first, second := field.NewPath("minCandidateNodesPercentage"), field.NewPath("minCandidateNodesAbsolute")
	if percentage < 0 || percentage > 100 {
		errs = append(errs, field.Invalid(first, percentage, "not in valid range [0, 100]"))
	}
	if absolute < 0 {
		errs = append(errs, field.Invalid(second, absolute, "not in valid range [0, inf)"))
	}
	if percentage == 0 && absolute == 0 {
		errs = append(errs, field.Invalid(first, percentage, "cannot be zero at the same time as minCandidateNodesAbsolute"),
			field.Invalid(second, absolute, "cannot be zero at the same time as minCandidateNodesPercentage"))
	}
	if err := errs.ToAggregate(); err != nil {
		return Plugin{}, err
	}
	return Preemption(PreemptionArgs{Percentage: int(percentage), Absolute: int(absolute)}, deps), nil
}

func makeVolumeBinding(deps Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.VolumeBindingArgs
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	if len(args.Shape) == 0 { // the emptier the better
		args.Shape = []configv1.UtilizationShapePoint{{Utilization: 0, Score: topShapeScore}, {Utilization: 100, Score: 0}}
	}
	var errs field.ErrorList
	if args.BindTimeoutSeconds != nil && *args.BindTimeoutSeconds < 0 {
		errs = append(errs, field.Invalid(field.NewPath("bindTimeoutSeconds"), *args.BindTimeoutSeconds, "invalid BindTimeoutSeconds, should not be a negative value"))
	}
	errs = append(errs, checkShape(args.Shape, field.NewPath("shape"))...)
	if err := errs.ToAggregate(); err != nil {
		return Plugin{}, err
	}
	out := BindingArgs{Timeout: time.Duration(orElse(args.BindTimeoutSeconds, 600)) * time.Second}
	for _, p := range args.Shape {
		out.Shape = append(out.Shape, Point{int64(p.Utilization), int64(p.Score) * (MaxScore / topShapeScore)})
	}
	return VolumeBinding(out, deps), nil
}

func makeDynamicResources(deps Deps, raw json.RawMessage) (Plugin, error) {
	var args configv1.DynamicResourcesArgs // the search is bounded by its steps, not by the time it takes
	if err := decodeArgs(raw, &args); err != nil {
		return Plugin{}, err
	}
	var errs field.ErrorList
	if args.FilterTimeout != nil && args.FilterTimeout.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("filterTimeout"), args.FilterTimeout, "must be zero or positive"))
	}
	if args.BindingTimeout != nil && args.BindingTimeout.Duration < time.Second {
		errs = append(errs, field.Invalid(field.NewPath("bindingTimeout"), args.BindingTimeout, "must be at least 1 second"))
	}
	if err := errs.ToAggregate(); err != nil {
		return Plugin{}, err
	}
	return DynamicResources(DeviceArgs{BindingTimeout: orElse(args.BindingTimeout, metav1.Duration{Duration: 10 * time.Minute}).Duration}, deps), nil
}
