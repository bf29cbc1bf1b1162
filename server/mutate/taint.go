package mutate

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// taintNodes keeps pods off a new node until somebody has seen it ready; otherwise they would come in the moment before the
// node's first conditions are turned into taints.
func taintNodes(_ context.Context, a *kind.Admission) error {
	node, ok := a.Object.(*corev1.Node)
	if !ok || !a.Creates() {
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

// tolerateBadNodes lets a pod stay a while on a node that has gone bad.
func tolerateBadNodes(_ context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.Creates() && !a.Updates() {
		return nil
	}
	said := pod.Spec.Tolerations
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !speaksOf(said, key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(badNodeSeconds)),
			})
		}
	}
	return nil
}

// speaksOf says that one of the tolerations is about being evicted for this taint.
func speaksOf(tolerations []corev1.Toleration, key string) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
