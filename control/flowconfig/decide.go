package flowconfig

import (
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/kinds/kind"
)

// outdated says that the system made an object which it does not suggest any more.
func outdated(o kind.Object) bool {
	auto, err := strconv.ParseBool(o.GetAnnotations()[automatic])
	return err == nil && auto
}

// revise returns an object as it is to be, or nil if it is.
func revise(have kind.Object, want wanted) kind.Object {
	auto := want.mandatory || keeps(have)
	other := auto && !same(have, want.Object)
	said, err := strconv.ParseBool(have.GetAnnotations()[automatic])
	silent := err != nil || said != auto
	if !other && !silent {
		return nil
	}
	next := have.DeepCopyObject().(kind.Object)
	if other {
		replace(next, want.Object)
	}
	if silent {
		all := next.GetAnnotations()
		if all == nil {
			all = map[string]string{}
		}
		all[automatic] = strconv.FormatBool(auto)
		next.SetAnnotations(all)
	}
	return next
}

// keeps says that a suggested object is the system's: it says so, or says nothing and was never changed.
func keeps(o kind.Object) bool {
	if auto, err := strconv.ParseBool(o.GetAnnotations()[automatic]); err == nil {
		return auto
	}
	return o.GetGeneration() == 1
}

// same compares specs. How much the exempt level may lend is for people to say.
func same(have, want kind.Object) bool {
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
			spec.Exempt.NominalConcurrencyShares, spec.Exempt.LendablePercent = have.Spec.Exempt.NominalConcurrencyShares, have.Spec.Exempt.LendablePercent
		}
		return equality.Semantic.DeepEqual(&have.Spec, spec)
	}
	return false
}

// replace gives an object the spec of another.
func replace(into, from kind.Object) {
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
