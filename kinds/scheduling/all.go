// Package scheduling holds the kinds of the scheduling.k8s.io group.
package scheduling

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		PriorityClasses(),
	}
}
