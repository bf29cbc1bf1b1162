package disruption

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/control/lib/workload"
)

// owner is a controller of Pods, and how many replicas it wants.
type owner struct {
	uid   types.UID
	scale int32
}

// finder returns the owner of a controller reference; nil if there is none.
type finder func(ref *metav1.OwnerReference) (*owner, error)

// result is the result of a decision about a budget.
type result struct {
	status policyv1.PodDisruptionBudgetStatus
	// unmanaged is true if some Pods have no controller, although Pods have to be counted by the scale of their controllers.
	unmanaged bool
	// late are Pods whose deletion was expected before now.
	late []*corev1.Pod
	// again is the time until an expected deletion is late; 0 if none is expected.
	again time.Duration
}

// decide computes the status of a budget from the Pods it selects.
func decide(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder, now time.Time) (result, error) {
	var f result
	expected, desired, err := f.expectedPods(b, pods, find)
	if err != nil {
		return f, err
	}
	disrupted := f.disruptedPods(b, pods, now)
	var healthy int32
	for _, p := range pods {
		if at, isDisrupted := disrupted[p.Name]; p.DeletionTimestamp == nil && workload.IsReady(p) &&
			!(isDisrupted && at.Add(timeout).After(now)) {
			healthy++
		}
	}
	allowed := max(0, healthy-desired)
	if expected <= 0 { // without Pods yet, the first ones must not be evicted
		allowed = 0
	}
	f.status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, DisruptedPods: disrupted, DisruptionsAllowed: allowed,
		CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: expected,
	}
	for i := range b.Status.Conditions {
		f.status.Conditions = append(f.status.Conditions, *b.Status.Conditions[i].DeepCopy())
	}
	is, reason := metav1.ConditionFalse, policyv1.InsufficientPodsReason
	if allowed > 0 {
		is, reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	setAllowed(&f.status, is, reason, "", now)
	return f, nil
}

func setAllowed(s *policyv1.PodDisruptionBudgetStatus, is metav1.ConditionStatus, reason, message string, now time.Time) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: is, Reason: reason, Message: message,
		ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
	})
}

// failedStatus returns the status of a budget that cannot be computed: nothing may be evicted.
func failedStatus(b *policyv1.PodDisruptionBudget, why error, now time.Time) policyv1.PodDisruptionBudgetStatus {
	s := b.Status.DeepCopy()
	s.DisruptionsAllowed = 0
	setAllowed(s, metav1.ConditionFalse, policyv1.SyncFailedReason, why.Error(), now)
	return *s
}

// expectedPods computes how many Pods there should be, and how many of them healthy.
func (f *result) expectedPods(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder) (expected, desired int32, err error) {
	minAvailable, maxUnavailable := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	switch {
	case maxUnavailable != nil:
		if expected, err = f.totalScale(pods, find); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(maxUnavailable, int(expected), true)
		return expected, max(0, expected-int32(n)), err
	case minAvailable != nil && minAvailable.Type == intstr.Int:
		return int32(len(pods)), minAvailable.IntVal, nil
	case minAvailable != nil:
		if expected, err = f.totalScale(pods, find); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(minAvailable, int(expected), true)
		return expected, int32(n), err
	}
	return 0, 0, nil
}

// totalScale returns the sum of the replicas that the controllers of the Pods want. Pods without a controller are not counted.
func (f *result) totalScale(pods []*corev1.Pod, find finder) (int32, error) {
	scales := map[types.UID]int32{}
	for _, p := range pods {
		ref := metav1.GetControllerOf(p)
		if ref == nil {
			f.unmanaged = true
			continue
		}
		if _, known := scales[ref.UID]; known {
			continue
		}
		o, err := find(ref)
		if err != nil {
			return 0, err
		}
		if o == nil {
			return 0, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		scales[o.uid] = o.scale
	}
	var sum int32
	for _, n := range scales {
		sum += n
	}
	return sum, nil
}

// disruptedPods returns the Pods whose eviction was allowed and that are not being deleted yet, with the time of the permission. A
// Pod that was not deleted in time is dropped.
func (f *result) disruptedPods(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) map[string]metav1.Time {
	out := map[string]metav1.Time{}
	for _, p := range pods {
		at, listed := b.Status.DisruptedPods[p.Name]
		if !listed || p.DeletionTimestamp != nil {
			continue
		}
		left := at.Add(timeout).Sub(now)
		if left < 0 {
			f.late = append(f.late, p)
			continue
		}
		if left = max(left, time.Millisecond); f.again == 0 || left < f.again {
			f.again = left
		}
		out[p.Name] = at
	}
	return out
}

// isDisruptionTarget reports whether a Pod has the condition DisruptionTarget but is not being deleted yet. A condition that a kubelet
// has set does not count, because the kubelet ends the Pod itself.
func isDisruptionTarget(p *corev1.Pod) bool {
	c := workload.Condition(p, corev1.DisruptionTarget)
	return p.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet &&
		!workload.IsTerminal(p)
}

// resetDisruptionTarget returns a Pod with the condition DisruptionTarget set to False, if its disruption has not begun in time; otherwise
// nil, and the time that is left.
func resetDisruptionTarget(p *corev1.Pod, now time.Time) (*corev1.Pod, time.Duration) {
	if !isDisruptionTarget(p) {
		return nil, 0
	}
	if left := timeout - now.Sub(workload.Condition(p, corev1.DisruptionTarget).LastTransitionTime.Time); left > 0 {
		return nil, left
	}
	out := p.DeepCopy()
	*workload.Condition(out, corev1.DisruptionTarget) = corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: p.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	return out, 0
}
