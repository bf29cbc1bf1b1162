// Package apiregistration holds the kinds of the apiregistration.k8s.io group.
package apiregistration

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		APIServices(),
	}
}
