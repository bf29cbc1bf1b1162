// Package flowcontrol holds the kinds of the flowcontrol.apiserver.k8s.io group.
package flowcontrol

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		FlowSchemas(),
		PriorityLevelConfigurations(),
	}
}
