// Package policy holds the kinds of the policy group.
package policy

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		PodDisruptionBudgets(),
	}
}
