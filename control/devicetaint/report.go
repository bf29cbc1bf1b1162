package devicetaint

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// reportInterval is the interval at which the status of a rule is written while Pods are being evicted.
const reportInterval = 10 * time.Second

// report writes the condition EvictionInProgress of a rule.
func (m *evictions) report(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	rule, found := control.Get[*resourcev1.DeviceTaintRule](c, rules(), "", k.Name)
	if !found || rule.DeletionTimestamp != nil {
		return 0, nil
	}
	now := time.Now()
	was := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	if was != nil && was.ObservedGeneration == rule.Generation {
		if rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
			return 0, nil
		}
		if left := reportInterval - now.Sub(was.LastTransitionTime.Time); left > 0 {
			return left, nil
		}
	}
	is := condition(rule, countAffected(c, rule), m.evictedBy(rule.UID))
	again := time.Duration(0)
	if is.Status == metav1.ConditionTrue {
		again = reportInterval
	}
	if was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message &&
		was.ObservedGeneration == is.ObservedGeneration {
		return again, nil
	}
	is.LastTransitionTime = metav1.NewTime(now)
	next := rule.DeepCopy()
	next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, func(c metav1.Condition) bool { return c.Type == is.Type })
	next.Status.Conditions = append(next.Status.Conditions, is)
	_, err := c.Update(ctx, rules(), next, "status")
	return again, control.IgnoreNotFound(err)
}

// counts are the devices that a rule selects, and the Pods that it evicts, with their namespaces.
type counts struct{ published, allocated, pods, namespaces int }

// countAffected counts the devices that a rule selects, and the Pods that it evicts, or would evict if it had the effect NoExecute.
func countAffected(c *control.Cluster, rule *resourcev1.DeviceTaintRule) (n counts) {
	if e := rule.Spec.Taint.Effect; e != resourcev1.DeviceTaintEffectNoExecute && e != resourcev1.DeviceTaintEffectNone {
		return n
	}
	as := rule.DeepCopy()
	as.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	w := newWorld(c)
	w.rules = []*resourcev1.DeviceTaintRule{as}
	for _, s := range w.slices() {
		for i := range s.Spec.Devices {
			if selects(as, &resourcev1.DeviceRequestAllocationResult{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name,
				Device: s.Spec.Devices[i].Name}) {
				n.published++
			}
		}
	}
	for claim := range control.List[*resourcev1.ResourceClaim](c, gr.ResourceClaims, "") {
		if claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			if selects(as, &claim.Status.Allocation.Devices.Results[i]) {
				n.allocated++
			}
		}
	}
	namespaces := map[string]bool{}
	for pod := range control.List[*corev1.Pod](c, gr.Pods, "") {
		if e := w.eviction(pod); pod.DeletionTimestamp == nil && e != nil && len(e.rules) > 0 {
			n.pods++
			namespaces[pod.Namespace] = true
		}
	}
	n.namespaces = len(namespaces)
	return n
}

// condition returns the condition EvictionInProgress of a rule; evicted is how many Pods it has evicted.
func condition(rule *resourcev1.DeviceTaintRule, n counts, evicted int) metav1.Condition {
	c := metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse,
		ObservedGeneration: rule.Generation}
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		switch {
		case n.pods > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			c.Message = plural(n.pods, "pod needs", "pods need") + " to be evicted in " + plural(n.namespaces, "namespace",
				"different namespaces") + "."
		case evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		c.Message = plural(n.published, "published device", "published devices") + " selected. " + plural(n.allocated, "allocated device",
			"allocated devices") + " selected. " +
			plural(n.pods, "pod", "pods") + " would be evicted in " + plural(n.namespaces, "namespace", "different namespaces") +
			" if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	default:
		c.Reason, c.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	}
	if evicted > 0 {
		if c.Message != "" {
			c.Message += " "
		}
		c.Message += plural(evicted, "pod", "pods") + " evicted since starting the controller."
	}
	return c
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
