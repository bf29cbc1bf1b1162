package flowconfig

import (
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/kinds/kind"
)

// isOutdated reports whether an object is one that an older version of the system suggested and kept up to date.
func isOutdated(o kind.Object) bool {
	auto, err := strconv.ParseBool(o.GetAnnotations()[autoUpdate])
	return err == nil && auto
}

// updated returns an object with the wanted spec and annotation, or nil if it needs no change.
func updated(have kind.Object, want wanted) kind.Object {
	auto := want.mandatory || isAutomatic(have)
	specDiffers := auto && !hasSameSpec(have, want.Object)
	annotated, err := strconv.ParseBool(have.GetAnnotations()[autoUpdate])
	annotationDiffers := err != nil || annotated != auto
	if !specDiffers && !annotationDiffers {
		return nil
	}
	next := have.DeepCopyObject().(kind.Object)
	if specDiffers {
		setSpec(next, want.Object)
	}
	if annotationDiffers {
		all := next.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[autoUpdate] = strconv.FormatBool(auto)
		next.SetAnnotations(all)
	}
	return next
}

// isAutomatic reports whether a suggested object is kept up to date: its annotation says so, or it has none and was never changed.
func isAutomatic(o kind.Object) bool {
	if auto, err := strconv.ParseBool(o.GetAnnotations()[autoUpdate]); err == nil {
		return auto
	}
	return o.GetGeneration() == 1
}

// hasSameSpec compares specs, except the shares of the exempt level, which administrators may change.
func hasSameSpec(have, want kind.Object) bool {
	switch have := have.(type) {
	case *flowcontrolv1.FlowSchema:
		want, ok := want.(*flowcontrolv1.FlowSchema)
		return ok && equality.Semantic.DeepEqual(have.Spec, want.Spec)
	case *flowcontrolv1.PriorityLevelConfiguration:
		want, ok := want.(*flowcontrolv1.PriorityLevelConfiguration)
		if !ok {
			return false
		}
		spec := want.Spec.DeepCopy()
		if have.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			if have.Spec.Exempt == nil || spec.Exempt == nil {
				return false
			}
			spec.Exempt.NominalConcurrencyShares, spec.Exempt.LendablePercent = have.Spec.Exempt.NominalConcurrencyShares,
				have.Spec.Exempt.LendablePercent
		}
		return equality.Semantic.DeepEqual(&have.Spec, spec)
	}
	return false
}

// setSpec copies the spec of one object to another.
func setSpec(into, from kind.Object) {
	switch into := into.(type) {
	case *flowcontrolv1.FlowSchema:
		if from, ok := from.(*flowcontrolv1.FlowSchema); ok {
			from.Spec.DeepCopyInto(&into.Spec)
		}
	case *flowcontrolv1.PriorityLevelConfiguration:
		if from, ok := from.(*flowcontrolv1.PriorityLevelConfiguration); ok {
			from.Spec.DeepCopyInto(&into.Spec)
		}
	}
}
