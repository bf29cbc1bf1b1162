// Package resource holds the kinds of the resource.k8s.io group.
package resource

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All(h Hooks) []*kind.Def {
	return []*kind.Def{
		DeviceClasses(h),
		DeviceTaintRules(),
		ResourceClaims(h),
		ResourceClaimTemplates(h),
		ResourceSlices(),
	}
}
