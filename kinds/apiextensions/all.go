// Package apiextensions holds the kinds of the apiextensions.k8s.io group.
package apiextensions

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All(h Hooks) []*kind.Def {
	return []*kind.Def{
		CustomResourceDefinitions(h),
	}
}
