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

	"proa.dev/control/workload"
)

// owner is what wants Pods, and how many.
type owner struct {
	uid   types.UID
	scale int32
}

// finder finds the owner behind a reference to a controller; nil if there is none.
type finder func(ref *metav1.OwnerReference) (*owner, error)

// finding is what a look at a budget comes to.
type finding struct {
	status policyv1.PodDisruptionBudgetStatus
	// unmanaged says that Pods without a controller are among those that had to be counted by their controllers.
	unmanaged bool
	// late are Pods that should have been deleted by now.
	late []*corev1.Pod
	// again is when a Pod that waits to be deleted is late; 0 if none waits.
	again time.Duration
}

// decide works out the status of a budget from the Pods it selects.
func decide(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder, now time.Time) (finding, error) {
	var f finding
	expected, desired, err := f.expect(b, pods, find)
	if err != nil {
		return f, err
	}
	disrupted := f.disrupted(b, pods, now)
	var healthy int32
	for _, p := range pods {
		if at, going := disrupted[p.Name]; p.DeletionTimestamp == nil && workload.Ready(p) && !(going && at.Add(timeout).After(now)) {
			healthy++
		}
	}
	allowed := max(0, healthy-desired)
	if expected <= 0 { // with no Pods yet, the first ones must not be fair game
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

// unknown is the status of a budget that cannot be worked out: nothing may be evicted.
func unknown(b *policyv1.PodDisruptionBudget, why error, now time.Time) policyv1.PodDisruptionBudgetStatus {
	s := b.Status.DeepCopy()
	s.DisruptionsAllowed = 0
	setAllowed(s, metav1.ConditionFalse, policyv1.SyncFailedReason, why.Error(), now)
	return *s
}

// expect works out how many Pods there should be, and how many of them healthy.
func (f *finding) expect(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder) (expected, desired int32, err error) {
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	switch {
	case most != nil:
		if expected, err = f.scale(pods, find); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(most, int(expected), true)
		return expected, max(0, expected-int32(n)), err
	case least != nil && least.Type == intstr.Int:
		return int32(len(pods)), least.IntVal, nil
	case least != nil:
		if expected, err = f.scale(pods, find); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(least, int(expected), true)
		return expected, int32(n), err
	}
	return 0, 0, nil
}

// scale adds up what the controllers of the Pods want. Pods without one are not counted.
func (f *finding) scale(pods []*corev1.Pod, find finder) (int32, error) {
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

// disrupted are the Pods that somebody may evict and that are not being deleted yet, with the time of the permission. One that has
// not been deleted in time will not be.
func (f *finding) disrupted(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) map[string]metav1.Time {
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

// announced says that a Pod carries the condition that it will be disrupted, and that nothing came of that so far. What a node announces is not
// meant: it deletes Pods in its own time.
func announced(p *corev1.Pod) bool {
	c := workload.Condition(p, corev1.DisruptionTarget)
	return p.DeletionTimestamp == nil && c != nil && c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet && !workload.Terminal(p)
}

// takeBack is a Pod whose announced disruption did not come, or nil with the time there is left for it.
func takeBack(p *corev1.Pod, now time.Time) (*corev1.Pod, time.Duration) {
	if !announced(p) {
		return nil, 0
	}
	if left := timeout - now.Sub(workload.Condition(p, corev1.DisruptionTarget).LastTransitionTime.Time); left > 0 {
		return nil, left
	}
	out := p.DeepCopy()
	*workload.Condition(out, corev1.DisruptionTarget) = corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	return out, 0
}
