// Package discovery holds the kinds of the discovery.k8s.io group.
package discovery

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		EndpointSlices(),
	}
}
