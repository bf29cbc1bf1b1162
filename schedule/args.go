package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	kjson "sigs.k8s.io/json"
)

// topShapeScore is the best score in a shape of the configuration file.
const topShapeScore = 10

// decodeArgs reads the arguments of a plugin. What is misspelt is an error.
func decodeArgs(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

func weights(in []configv1.ResourceSpec) []WeightedResource {
	var out []WeightedResource
	for _, r := range in {
		out = append(out, WeightedResource{corev1.ResourceName(r.Name), r.Weight})
	}
	return out
}

func defaultWeights(in []configv1.ResourceSpec) {
	for i := range in {
		if in[i].Weight == 0 {
			in[i].Weight = 1
		}
	}
}

func defaultFit(args *configv1.NodeResourcesFitArgs) {
	if args.ScoringStrategy == nil {
		args.ScoringStrategy = &configv1.ScoringStrategy{Type: configv1.LeastAllocated}
	}
	if len(args.ScoringStrategy.Resources) == 0 {
		args.ScoringStrategy.Resources = []configv1.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	}
	defaultWeights(args.ScoringStrategy.Resources)
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
		errs = append(errs, checkShape(s.RequestedToCapacityRatio.Shape, ratio.Child("shape"))...)
	case s.RequestedToCapacityRatio != nil:
		errs = append(errs, field.Forbidden(ratio, "must be nil when type is not RequestedToCapacityRatio"))
	}
	return errs
}

// checkShape checks that a line goes from left to right and stays within its bounds.
func checkShape(shape []configv1.UtilizationShapePoint, at *field.Path) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(at, "at least one point must be specified")}
	}
	for i := 1; i < len(shape); i++ {
		if shape[i-1].Utilization >= shape[i].Utilization {
			errs = append(errs, field.Invalid(at.Index(i).Child("utilization"), shape[i].Utilization, "values must be sorted in increasing order"))
			break
		}
	}
	for i, p := range shape {
		if p.Utilization < 0 || p.Utilization > 100 {
			errs = append(errs, field.Invalid(at.Index(i).Child("utilization"), p.Utilization, "not in valid range [0, 100]"))
		}
		if p.Score < 0 || p.Score > topShapeScore {
			errs = append(errs, field.Invalid(at.Index(i).Child("score"), p.Score, fmt.Sprintf("not in valid range [0, %d]", topShapeScore)))
		}
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
