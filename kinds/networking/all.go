// Package networking holds the kinds of the networking.k8s.io group.
package networking

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		Ingresses(),
		IngressClasses(),
		NetworkPolicies(),
		ServiceCIDRs(),
		IPAddresses(),
	}
}
