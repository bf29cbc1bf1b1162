package flowcontrol

import (
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// MandatorySchemas returns the flow schemas that the server always keeps.
func MandatorySchemas() []*flowcontrolv1.FlowSchema {
	return deepCopies(bootstrap.MandatoryFlowSchemas)
}

// MandatoryLevels returns the priority levels that the server always keeps.
func MandatoryLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	return deepCopies(bootstrap.MandatoryPriorityLevelConfigurations)
}

// Schemas returns the initial flow schemas of a cluster, the mandatory ones first.
func Schemas() []*flowcontrolv1.FlowSchema {
	return append(MandatorySchemas(), deepCopies(bootstrap.SuggestedFlowSchemas)...)
}

// Levels returns the initial priority levels of a cluster, the mandatory ones first.
func Levels() []*flowcontrolv1.PriorityLevelConfiguration {
	return append(MandatoryLevels(), deepCopies(bootstrap.SuggestedPriorityLevelConfigurations)...)
}

// deepCopies returns deep copies, because callers may modify them.
func deepCopies[T interface{ DeepCopy() T }](list []T) []T {
	list = slices.Clone(list)
	for i := range list {
		list[i] = list[i].DeepCopy()
	}
	return list
}
