package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/control/lib/workload"
)

// roll deletes Pods that do not have the update revision yet, from the highest ordinal down to the partition and within
// maxUnavailable. They are created again with the update revision.
func (s *state) roll(slots []*corev1.Pod) []step {
	budget := s.maxUnavailable() - (replicas(s.set) - len(slots))
	for _, pod := range slots {
		if s.isUnavailable(pod) {
			budget--
		}
	}
	var unavailable, available []*corev1.Pod
	for _, pod := range slices.Backward(slots) {
		if ordinal(s.set, pod)-start(s.set) < partition(s.set) {
			break
		}
		switch {
		case !exists(pod), workload.IsTerminal(pod), pod.DeletionTimestamp != nil, podRevision(pod) == s.update.name:
		case s.isUnavailable(pod):
			unavailable = append(unavailable, pod)
		default:
			available = append(available, pod)
		}
	}
	// Unless the set is parallel, all Pods are available by now. In a parallel set replacing unavailable Pods costs nothing,
	// and waiting for them could take forever.
	if !s.isParallel() {
		unavailable = nil
	}
	var steps []step
	for _, pod := range append(unavailable, available[:min(max(budget, 0), len(available))]...) {
		steps = append(steps, step{verb: remove, pod: pod, counted: podRevision(pod) == s.current.name})
	}
	return steps
}

// maxUnavailable returns how many Pods an update may make unavailable, at least one.
func (s *state) maxUnavailable() int {
	one := intstr.FromInt32(1)
	if r := s.set.Spec.UpdateStrategy.RollingUpdate; r != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, one), replicas(s.set), false)
		if err == nil {
			return max(n, 1)
		}
	}
	return 1
}

// status returns the status of the set.
func (s *state) status(lists ...[]*corev1.Pod) appsv1.StatefulSetStatus {
	status := appsv1.StatefulSetStatus{
		ObservedGeneration: s.set.Generation, CurrentRevision: s.current.name, UpdateRevision: s.update.name,
		CollisionCount: new(s.collisions), Conditions: s.set.Status.Conditions,
	}
	for _, pod := range slices.Concat(lists...) {
		if !exists(pod) {
			continue
		}
		status.Replicas++
		if isRunningAndReady(pod) {
			status.ReadyReplicas++
			if s.isAvailable(pod) {
				status.AvailableReplicas++
			}
		}
		if pod.DeletionTimestamp == nil {
			if podRevision(pod) == s.current.name {
				status.CurrentReplicas++
			}
			if podRevision(pod) == s.update.name {
				status.UpdatedReplicas++
			}
		}
	}
	return status
}

// completeUpdate makes the update revision the current one when all Pods have it.
func completeUpdate(set *appsv1.StatefulSet, status *appsv1.StatefulSetStatus) {
	all := int32(replicas(set))
	if status.UpdatedReplicas == all && status.ReadyReplicas == all && status.Replicas == all {
		status.CurrentReplicas = status.UpdatedReplicas
		status.CurrentRevision = status.UpdateRevision
	}
}
