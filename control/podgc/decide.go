package podgc

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control/workload"
)

// outOfService says that somebody has declared a node dead, and it does not object.
func outOfService(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// leaving are the Pods that are being deleted and that a last push would help: one that has ended and has no time left waits for its
// finalizers only.
func leaving(pods []*corev1.Pod) (out []*corev1.Pod) {
	for _, p := range pods {
		pushed := workload.Terminal(p) && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
		if p.DeletionTimestamp != nil && !pushed {
			out = append(out, p)
		}
	}
	return out
}

// orphans are the Pods of a node that is gone, but for those that are on their way.
func orphans(pods []*corev1.Pod) []*corev1.Pod {
	left := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return append(left, leaving(pods)...)
}

// surplus are the Pods that have ended and are more than may stay: first those that were evicted, then the oldest.
func surplus(pods []*corev1.Pod, threshold int) []*corev1.Pod {
	if threshold <= 0 || len(pods) <= threshold {
		return nil
	}
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b *corev1.Pod) int {
		if evicted(a) != evicted(b) {
			if evicted(a) {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted[:len(sorted)-threshold]
}

func evicted(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
}

// nodeGone is the condition of Pods whose node is gone.
func nodeGone() *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
	}
}

// failed is a Pod that has failed, or nil if it has ended anyway. Nobody else would say so: there is no node that looks after it.
func failed(p *corev1.Pod, why *corev1.PodCondition, now time.Time) *corev1.Pod {
	if workload.Terminal(p) {
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
