package replicaset

import (
	"maps"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/control/lib/workload"
)

// burst bounds the Pods that one reconcile creates or deletes.
const burst = 500

// plan is what to do to reach the wanted number of Pods.
type plan struct {
	create int
	remove []*corev1.Pod
}

// decide compares the wanted number with the active Pods. related are the Pods that are considered for spreading the
// remaining ones over nodes.
func decide(rs *appsv1.ReplicaSet, active, related []*corev1.Pod, now time.Time) plan {
	if rs.DeletionTimestamp != nil {
		return plan{}
	}
	more := int(wanted(rs)) - len(active)
	if more > 0 {
		return plan{create: min(more, burst)}
	}
	if more < 0 {
		return plan{remove: workload.ToDelete(active, related, min(-more, burst), now)}
	}
	return plan{}
}

// wanted returns spec.replicas, which defaults to 1.
func wanted(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

// status returns the new status. failure is the error of carrying out the plan. terminating is nil if it is not counted.
func status(rs *appsv1.ReplicaSet, active []*corev1.Pod, terminating *int32, failure error, now time.Time) appsv1.ReplicaSetStatus {
	out := appsv1.ReplicaSetStatus{
		Replicas: int32(len(active)), TerminatingReplicas: terminating, ObservedGeneration: rs.Generation,
		Conditions: slices.Clone(rs.Status.Conditions),
	}
	full := labels.SelectorFromSet(rs.Spec.Template.Labels)
	for _, p := range active {
		if full.Matches(labels.Set(p.Labels)) {
			out.FullyLabeledReplicas++
		}
		if workload.IsReady(p) {
			out.ReadyReplicas++
		}
		if workload.IsAvailable(p, rs.Spec.MinReadySeconds, now) {
			out.AvailableReplicas++
		}
	}
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	switch has := slices.ContainsFunc(out.Conditions, isFailure); {
	case failure == nil && has:
		out.Conditions = slices.DeleteFunc(out.Conditions, isFailure)
	case failure != nil && !has: // the first failure is kept; the following ones are mostly the same
		reason := ""
		switch more := int(wanted(rs)) - len(active); {
		case more > 0:
			reason = workload.FailedCreate
		case more < 0:
			reason = workload.FailedDelete
		}
		out.Conditions = append(out.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason, Message: failure.Error(),
			LastTransitionTime: metav1.NewTime(now),
		})
	}
	return out
}

// timeUntilAvailable returns the time until a ready Pod becomes available, for which there is no event.
func timeUntilAvailable(rs *appsv1.ReplicaSet, s *appsv1.ReplicaSetStatus, active []*corev1.Pod, now time.Time) time.Duration {
	if rs.Spec.MinReadySeconds <= 0 || s.ReadyReplicas == s.AvailableReplicas {
		return 0
	}
	if next := workload.NextAvailable(active, rs.Spec.MinReadySeconds, now); next > 0 {
		return next
	}
	return time.Duration(rs.Spec.MinReadySeconds) * time.Second
}

// hasSameReady reports whether two states of a Pod have the same condition Ready.
func hasSameReady(a, b *corev1.Pod) bool {
	return reflect.DeepEqual(workload.Condition(a, corev1.PodReady), workload.Condition(b, corev1.PodReady))
}

// hasSameOwnership reports whether two states of a Pod have the same labels and owners.
func hasSameOwnership(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
