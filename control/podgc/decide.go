package podgc

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control/lib/workload"
)

// isOutOfService reports whether a node has the taint out-of-service and is not ready.
func isOutOfService(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// terminating returns the Pods that are being deleted and that can be deleted by force. A terminal Pod without grace period is not
// among them, because it only waits for its finalizers.
func terminating(pods []*corev1.Pod) (out []*corev1.Pod) {
	for _, p := range pods {
		forced := workload.IsTerminal(p) && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
		if p.DeletionTimestamp != nil && !forced {
			out = append(out, p)
		}
	}
	return out
}

// orphanedPods returns the Pods of a deleted node that have to be deleted.
func orphanedPods(pods []*corev1.Pod) []*corev1.Pod {
	left := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return append(left, terminating(pods)...)
}

// surplus returns the terminal Pods above the threshold: first evicted ones, then the oldest.
func surplus(pods []*corev1.Pod, threshold int) []*corev1.Pod {
	if threshold <= 0 || len(pods) <= threshold {
		return nil
	}
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b *corev1.Pod) int {
		if isEvicted(a) != isEvicted(b) {
			if isEvicted(a) {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted[:len(sorted)-threshold]
}

func isEvicted(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
}

// nodeDeletedCondition returns the condition of Pods whose node was deleted.
func nodeDeletedCondition() *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
	}
}

// withFailedPhase returns a copy of a Pod with the phase Failed, or nil if it is terminal already. There is no kubelet that would set
// the phase.
func withFailedPhase(p *corev1.Pod, why *corev1.PodCondition, now time.Time) *corev1.Pod {
	if workload.IsTerminal(p) {
		return nil
	}
	out := p.DeepCopy()
	out.Status.Phase = corev1.PodFailed
	out.Status.ObservedGeneration = p.Generation
	if why == nil {
		return out
	}
	c := *why
	c.ObservedGeneration, c.LastTransitionTime = p.Generation, metav1.NewTime(now)
	if have := workload.Condition(out, c.Type); have == nil {
		out.Status.Conditions = append(out.Status.Conditions, c)
	} else {
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		*have = c
	}
	return out
}
