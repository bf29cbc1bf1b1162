// Package apps holds the kinds of the apps group: the workloads that are kept running.
package apps

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		Deployments(),
		ReplicaSets(),
		StatefulSets(),
		DaemonSets(),
		ControllerRevisions(),
	}
}
