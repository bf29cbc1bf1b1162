package fit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/schedule/framework"
)

func weightedResources(in []configv1.ResourceSpec) []weightedResource {
	var out []weightedResource
	for _, r := range in {
		out = append(out, weightedResource{corev1.ResourceName(r.Name), r.Weight})
	}
	return out
}

func setDefaultWeights(in []configv1.ResourceSpec) {
	for i := range in {
		if in[i].Weight == 0 {
			in[i].Weight = 1
		}
	}
}

func setFitDefaults(args *configv1.NodeResourcesFitArgs) {
	if args.ScoringStrategy == nil {
		args.ScoringStrategy = &configv1.ScoringStrategy{Type: configv1.LeastAllocated}
	}
	if len(args.ScoringStrategy.Resources) == 0 {
		args.ScoringStrategy.Resources = []configv1.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	}
	setDefaultWeights(args.ScoringStrategy.Resources)
}

func checkFit(args *configv1.NodeResourcesFitArgs) (errs field.ErrorList) {
	for i, name := range args.IgnoredResources {
		errs = append(errs, metav1validation.ValidateLabelName(name, field.NewPath("ignoredResources").Index(i))...)
	}
	for i, group := range args.IgnoredResourceGroups {
		at := field.NewPath("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(at, group, "resource group name can't contain '/'"))
		}
		errs = append(errs, metav1validation.ValidateLabelName(group, at)...)
	}
	s, at := args.ScoringStrategy, field.NewPath("scoringStrategy")
	switch s.Type {
	case configv1.LeastAllocated, configv1.MostAllocated, configv1.RequestedToCapacityRatio:
	default:
		errs = append(errs, field.NotSupported(at.Child("type"), s.Type,
			[]string{string(configv1.LeastAllocated), string(configv1.MostAllocated), string(configv1.RequestedToCapacityRatio)}))
	}
	for i, r := range s.Resources {
		if r.Weight <= 0 || r.Weight > 100 {
			errs = append(errs, field.Invalid(at.Child("resources").Index(i).Child("weight"), r.Weight,
				fmt.Sprintf("resource weight of %v not in valid range (0, 100]", r.Name)))
		}
	}
	ratio := at.Child("requestedToCapacityRatio")
	switch {
	case s.Type == configv1.RequestedToCapacityRatio && s.RequestedToCapacityRatio == nil:
		errs = append(errs, field.Required(ratio, "must be specified when type is RequestedToCapacityRatio"))
	case s.Type == configv1.RequestedToCapacityRatio:
		errs = append(errs, framework.CheckShape(s.RequestedToCapacityRatio.Shape, ratio.Child("shape"))...)
	case s.RequestedToCapacityRatio != nil:
		errs = append(errs, field.Forbidden(ratio, "must be nil when type is not RequestedToCapacityRatio"))
	}
	return errs
}

func checkBalance(args *configv1.NodeResourcesBalancedAllocationArgs) (errs field.ErrorList) {
	seen := sets.New[string]()
	for i, r := range args.Resources {
		at := field.NewPath("resources").Index(i)
		if seen.Has(r.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		seen.Insert(r.Name)
		if r.Weight != 1 {
			errs = append(errs, field.Invalid(at.Child("weight"), r.Weight, "must be 1"))
		}
	}
	return errs
}

// New returns the plugin NodeResourcesFit.
func New(deps framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.NodeResourcesFitArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	setFitDefaults(&args)
	if err := checkFit(&args).ToAggregate(); err != nil {
		return framework.Plugin{}, err
	}
	strategy := strategy{Type: strategyType(args.ScoringStrategy.Type), Resources: weightedResources(args.ScoringStrategy.Resources)}
	if ratio := args.ScoringStrategy.RequestedToCapacityRatio; ratio != nil {
		for _, p := range ratio.Shape {
			// Scores in the configuration file are 0 to 10.
			strategy.Shape = append(strategy.Shape,
				framework.ShapePoint{Utilization: int64(p.Utilization),
					Score: int64(p.Score) * (framework.MaxScore / framework.MaxShapeScore)})
		}
	}
	return newFit(fitArgs{Ignored: slices.Concat(args.IgnoredResources, deps.IgnoredResources), IgnoredGroups: args.IgnoredResourceGroups,
		Strategy: strategy, Classes: deps.Views}), nil
}

// NewBalancedAllocation returns the plugin NodeResourcesBalancedAllocation.
func NewBalancedAllocation(_ framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.NodeResourcesBalancedAllocationArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	setDefaultWeights(args.Resources)
	if err := checkBalance(&args).ToAggregate(); err != nil {
		return framework.Plugin{}, err
	}
	return newBalancedAllocation(weightedResources(args.Resources)), nil
}
