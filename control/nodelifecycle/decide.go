package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
)

// setUnknown sets the conditions of a node without heartbeats to Unknown, and reports whether that changes any.
func setUnknown(st *corev1.NodeStatus, node *corev1.Node, now time.Time) (changed bool) {
	for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		c := condition(st, t)
		switch {
		case c == nil:
			st.Conditions = append(st.Conditions, corev1.NodeCondition{
				Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now),
			})
			changed = true
		case c.Status != corev1.ConditionUnknown:
			c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			c.LastTransitionTime = metav1.NewTime(now)
			changed = true
		}
	}
	return changed
}

// setNotReady sets the condition Ready of a Pod to False, and reports whether it was True.
func setNotReady(st *corev1.PodStatus, now time.Time) bool {
	for i := range st.Conditions {
		if c := &st.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now)
			return true
		}
	}
	return false
}

// setDeprecatedLabels sets the deprecated labels of operating system and architecture, which selectors may still use, and reports whether
// that changes any.
func setDeprecatedLabels(node *corev1.Node) (changed bool) {
	for from, to := range map[string]string{corev1.LabelOSStable: "beta.kubernetes.io/os",
		corev1.LabelArchStable: "beta.kubernetes.io/arch"} {
		if v, ok := node.Labels[from]; ok && node.Labels[to] != v {
			node.Labels[to] = v
			changed = true
		}
	}
	return changed
}

// noScheduleTaints returns the keys of the NoSchedule taints that follow from the conditions of a node.
func noScheduleTaints(node *corev1.Node) (keys []string) {
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse:
			keys = append(keys, corev1.TaintNodeNotReady)
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown:
			keys = append(keys, corev1.TaintNodeUnreachable)
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.NodeMemoryPressure:
			keys = append(keys, corev1.TaintNodeMemoryPressure)
		case c.Type == corev1.NodeDiskPressure:
			keys = append(keys, corev1.TaintNodeDiskPressure)
		case c.Type == corev1.NodeNetworkUnavailable:
			keys = append(keys, corev1.TaintNodeNetworkUnavailable)
		case c.Type == corev1.NodePIDPressure:
			keys = append(keys, corev1.TaintNodePIDPressure)
		}
	}
	if node.Spec.Unschedulable {
		keys = append(keys, corev1.TaintNodeUnschedulable)
	}
	// A node without the condition Ready keeps the taint it was created with.
	if condition(&node.Status, corev1.NodeReady) == nil {
		keys = append(keys, corev1.TaintNodeNotReady)
	}
	return keys
}

// isConditionTaint reports whether a taint follows from a condition, so that this controller removes it again.
func isConditionTaint(key string) bool {
	switch key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
		corev1.TaintNodeNetworkUnavailable, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable:
		return true
	}
	return false
}

// isEvictionTaint reports whether a taint evicts Pods because the node is not ready.
func isEvictionTaint(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// wantedTaints returns the taints a node should have, and the time until an eviction taint that is delayed may be added.
func (t *monitor) wantedTaints(c *control.Cluster, node *corev1.Node, now time.Time) (want []corev1.Taint, wait time.Duration) {
	missing := noScheduleTaints(node)
	isEvicting := false
	for _, x := range node.Spec.Taints {
		switch {
		case isEvictionTaint(&x):
			isEvicting = true
		case x.Effect != corev1.TaintEffectNoSchedule || !isConditionTaint(x.Key):
			want = append(want, x)
		case slices.Contains(missing, x.Key):
			want = append(want, x)
			missing = slices.DeleteFunc(missing, func(k string) bool { return k == x.Key })
		}
	}
	for _, key := range missing {
		if !slices.ContainsFunc(want, func(x corev1.Taint) bool { return x.Key == key && x.Effect == corev1.TaintEffectNoSchedule }) {
			want = append(want, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(now))})
		}
	}
	key := map[corev1.ConditionStatus]string{corev1.ConditionFalse: corev1.TaintNodeNotReady,
		corev1.ConditionUnknown: corev1.TaintNodeUnreachable}[readiness(node)]
	if key == "" {
		return want, 0
	}
	interval, down := t.evictionInterval(c, node)
	ok := isEvicting && !down
	if !isEvicting {
		ok, wait = t.mayEvict(node, interval, down, now)
	}
	if ok {
		want = append(want, evictionTaint(node, key, now))
	}
	return want, wait
}

// evictionTaint returns the eviction taint with the time when it was first added.
func evictionTaint(node *corev1.Node, key string, now time.Time) corev1.Taint {
	for _, x := range node.Spec.Taints {
		if x.Key == key && x.Effect == corev1.TaintEffectNoExecute {
			return x
		}
	}
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(now))}
}
