package mutate

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// taintNodes taints a new node as not ready until it has reported ready; otherwise pods would be scheduled to it before
// its first conditions are turned into taints.
func taintNodes(_ context.Context, a *kind.Admission) error {
	node, ok := a.Object.(*corev1.Node)
	if !ok || !a.IsCreate() {
		return nil
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].MatchTaint(&taint) {
			return nil
		}
	}
	node.Spec.Taints = append(node.Spec.Taints, taint)
	return nil
}

// badNodeSeconds is how long a pod stays on a node that is not ready or not reachable, unless it says otherwise.
const badNodeSeconds = 300

// defaultTolerations adds the tolerations that let a pod stay for a while on a node that is not ready or unreachable.
func defaultTolerations(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.IsCreate() && !a.IsUpdate() {
		return nil
	}
	own := pod.Spec.Tolerations
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !toleratesEviction(own, key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: new(int64(badNodeSeconds)),
			})
		}
	}
	return nil
}

// toleratesEviction reports whether one of the tolerations is about eviction for this taint.
func toleratesEviction(tolerations []corev1.Toleration, key string) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
