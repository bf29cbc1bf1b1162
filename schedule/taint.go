package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/placement"
)

// TaintToleration keeps pods off nodes with taints they do not tolerate.
func TaintToleration() Plugin {
	untolerated := NotEver("node(s) had untolerated taint(s)")
	return Plugin{
		Name: "TaintToleration",
		Wakes: []Wake{
			{On: NodeResource, Do: Add | NodeTaint, If: taintsWentAway},
			{On: TargetPod, Do: PodToleration},
		},
		Prepare: func(_ *Snapshot, p *PodInfo) Prepared {
			tolerations := p.Pod.Spec.Tolerations
			return Prepared{
				Reuse: WhileNode,
				Filter: func(n *NodeInfo) *Verdict {
					for i := range n.Hard {
						if !tolerated(tolerations, &n.Hard[i]) {
							return untolerated
						}
					}
					return nil
				},
				Score: func(n *NodeInfo) (count int64) {
					for i := range n.Soft {
						if !tolerated(tolerations, &n.Soft[i]) {
							count++
						}
					}
					return count
				},
				Normalize: func(_ []*NodeInfo, scores []int64) { spread(scores, true) },
			}
		},
	}
}

// taintsWentAway says that the pod tolerates the node, and did not tolerate it before.
func taintsWentAway(pod *corev1.Pod, was, is kind.Object) bool {
	bad := func(o kind.Object) bool {
		for _, t := range o.(*corev1.Node).Spec.Taints {
			if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(pod.Spec.Tolerations, &t) {
				return true
			}
		}
		return false
	}
	return (was == nil || bad(was)) && !bad(is)
}

// tolerated says that one of the tolerations is for the taint.
func tolerated(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		if placement.Tolerates(&tolerations[i], taint) {
			return true
		}
	}
	return false
}
