// Package core holds the kinds of the core group: one file a kind, and the pod template that other groups
// build on.
package core

import "proa.dev/kinds/kind"

// All lists the kinds of the group, without hooks.
func All() []*kind.Def { return AllWith(Hooks{}) }

// AllWith lists the kinds of the group.
func AllWith(h Hooks) []*kind.Def {
	return []*kind.Def{
		Bindings(),
		ComponentStatuses(),
		ConfigMaps(),
		Endpoints(),
		Events(),
		LimitRanges(),
		Namespaces(),
		Nodes(h),
		PersistentVolumeClaims(),
		PersistentVolumes(),
		PodTemplates(),
		Pods(),
		ReplicationControllers(),
		ResourceQuotas(),
		Secrets(),
		ServiceAccounts(),
		Services(),
	}
}
