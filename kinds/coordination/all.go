// Package coordination holds the kinds of the coordination.k8s.io group.
package coordination

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		Leases(),
	}
}
