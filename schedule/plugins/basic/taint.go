package basic

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// TaintToleration rejects nodes with taints that the Pod does not tolerate, and prefers nodes with fewer
// PreferNoSchedule taints.
func TaintToleration() framework.Plugin {
	untolerated := framework.Unresolvable("node(s) had untolerated taint(s)")
	return framework.Plugin{
		Name: "TaintToleration",
		QueueingHints: []framework.QueueingHint{
			{On: framework.NodeResource, Do: framework.Add | framework.NodeTaint, If: becameTolerable},
			{On: framework.TargetPod, Do: framework.PodToleration},
		},
		Prepare: func(_ *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
			tolerations := p.Pod.Spec.Tolerations
			return framework.Prepared{
				Reuse: framework.ReuseWhileNodeUnchanged,
				Filter: func(n *framework.NodeInfo) *framework.Rejection {
					for i := range n.HardTaints {
						if !framework.Tolerates(tolerations, &n.HardTaints[i]) {
							return untolerated
						}
					}
					return nil
				},
				Score: func(n *framework.NodeInfo) (count int64) {
					for i := range n.SoftTaints {
						if !framework.Tolerates(tolerations, &n.SoftTaints[i]) {
							count++
						}
					}
					return count
				},
				Normalize: func(_ []*framework.NodeInfo, scores []int64) { framework.NormalizeScores(scores, true) },
			}
		},
	}
}

// becameTolerable reports whether the Pod tolerates the taints of the node, and did not tolerate them before.
func becameTolerable(pod *corev1.Pod, was, is kind.Object) bool {
	bad := func(o kind.Object) bool {
		for _, t := range o.(*corev1.Node).Spec.Taints {
			if t.Effect != corev1.TaintEffectPreferNoSchedule && !framework.Tolerates(pod.Spec.Tolerations, &t) {
				return true
			}
		}
		return false
	}
	return (was == nil || bad(was)) && !bad(is)
}
