// Package autoscaling holds the kinds of the autoscaling group: the horizontal pod autoscaler in its two
// versions.
package autoscaling

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	hub := HorizontalPodAutoscalers()
	return []*kind.Def{
		hub,
		HorizontalPodAutoscalersV1(hub),
	}
}
