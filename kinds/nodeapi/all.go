// Package nodeapi holds the kinds of the node.k8s.io group.
package nodeapi

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		RuntimeClasses(),
	}
}
