// Package core lists the kinds of the core group and declares the small ones, one file a kind. Pods, Services, Nodes and volumes have
// packages of their own below.
package core

import (
	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/core/podkind"
	"proa.dev/kinds/core/servicekind"
	"proa.dev/kinds/core/volumekind"
	"proa.dev/kinds/kind"
)

// All lists the kinds of the group, without hooks.
func All() []*kind.Def { return AllWith(nodekind.Hooks{}) }

// AllWith lists the kinds of the group.
func AllWith(h nodekind.Hooks) []*kind.Def {
	return []*kind.Def{
		podkind.Bindings(),
		ComponentStatuses(),
		ConfigMaps(),
		Endpoints(),
		Events(),
		LimitRanges(),
		Namespaces(),
		nodekind.Nodes(h),
		volumekind.PersistentVolumeClaims(),
		volumekind.PersistentVolumes(),
		PodTemplates(),
		podkind.Pods(),
		ReplicationControllers(),
		ResourceQuotas(),
		Secrets(),
		ServiceAccounts(),
		servicekind.Services(),
	}
}
