package nodelife

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
)

// lost makes the conditions of a node that gives no sign unknown. It says whether that changes anything.
func lost(st *corev1.NodeStatus, node *corev1.Node, now time.Time) (changed bool) {
	for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
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

// unready makes a Pod not ready. It says whether it was.
func unready(st *corev1.PodStatus, now time.Time) bool {
	for i := range st.Conditions {
		if c := &st.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now)
			return true
		}
	}
	return false
}

// oldNames gives a node its system and its architecture under their old names too, which selectors may still use. It says
// whether that changes anything.
func oldNames(node *corev1.Node) (changed bool) {
	for from, to := range map[string]string{corev1.LabelOSStable: "beta.kubernetes.io/os", corev1.LabelArchStable: "beta.kubernetes.io/arch"} {
		if v, ok := node.Labels[from]; ok && node.Labels[to] != v {
			node.Labels[to] = v
			changed = true
		}
	}
	return changed
}

// keepsAway are the taints that conditions of a node make.
func keepsAway(node *corev1.Node) (keys []string) {
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
	// A node that has never said whether it is ready keeps the taint it was made with.
	if condition(&node.Status, corev1.NodeReady) == nil {
		keys = append(keys, corev1.TaintNodeNotReady)
	}
	return keys
}

// ours says that a taint follows from a condition, so that this loop takes it away again.
func ours(key string) bool {
	switch key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
		corev1.TaintNodeNetworkUnavailable, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable:
		return true
	}
	return false
}

// drives says that a taint drives Pods off because the node is not ready.
func drives(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// taints are the taints a node should have, and when to ask again for one that has to wait.
func (t *tower) taints(c *control.Cluster, node *corev1.Node, now time.Time) (want []corev1.Taint, wait time.Duration) {
	away := keepsAway(node)
	isDriven := false
	for _, x := range node.Spec.Taints {
		switch {
		case drives(&x):
			isDriven = true
		case x.Effect != corev1.TaintEffectNoSchedule || !ours(x.Key):
			want = append(want, x)
		case slices.Contains(away, x.Key):
			want = append(want, x)
			away = slices.DeleteFunc(away, func(k string) bool { return k == x.Key })
		}
	}
	for _, key := range away {
		if !slices.ContainsFunc(want, func(x corev1.Taint) bool { return x.Key == key && x.Effect == corev1.TaintEffectNoSchedule }) {
			want = append(want, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(metav1.NewTime(now))})
		}
	}
	key := map[corev1.ConditionStatus]string{corev1.ConditionFalse: corev1.TaintNodeNotReady, corev1.ConditionUnknown: corev1.TaintNodeUnreachable}[readiness(node)]
	if key == "" {
		return want, 0
	}
	every, down := t.pace(c, node)
	ok := isDriven && !down
	if !isDriven {
		ok, wait = t.pass(node, every, down, now)
	}
	if ok {
		want = append(want, stamped(node, key, now))
	}
	return want, wait
}

// stamped is the driving taint with the time it was first there.
func stamped(node *corev1.Node, key string, now time.Time) corev1.Taint {
	for _, x := range node.Spec.Taints {
		if x.Key == key && x.Effect == corev1.TaintEffectNoExecute {
			return x
		}
	}
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(now))}
}
