package flowcontrol

import (
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// MandatorySchemas are the flow schemas that exist as long as the server does.
func MandatorySchemas() []*flowcontrolv1.FlowSchema { return copies(bootstrap.MandatoryFlowSchemas) }

// MandatoryLevels are the priority levels that exist as long as the server does.
func MandatoryLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	return copies(bootstrap.MandatoryPriorityLevelConfigurations)
}

// Schemas are all flow schemas that a new cluster begins with, the mandatory ones first.
func Schemas() []*flowcontrolv1.FlowSchema {
	return append(MandatorySchemas(), copies(bootstrap.SuggestedFlowSchemas)...)
}

// Levels are all priority levels that a new cluster begins with, the mandatory ones first.
func Levels() []*flowcontrolv1.PriorityLevelConfiguration {
	return append(MandatoryLevels(), copies(bootstrap.SuggestedPriorityLevelConfigurations)...)
}

// copies protects the library's objects from their users.
func copies[T interface{ DeepCopy() T }](list []T) []T {
	list = slices.Clone(list)
	for i := range list {
		list[i] = list[i].DeepCopy()
	}
	return list
}
