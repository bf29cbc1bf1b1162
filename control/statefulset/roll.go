package statefulset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/control/workload"
)

// roll removes Pods that are not of the update yet, from the highest ordinal down to the partition, so that never more are
// unavailable than may be. They come back as new ones.
func (s *state) roll(slots []*corev1.Pod) []step {
	budget := s.maxUnavailable()
	for _, pod := range slots {
		if s.unavailable(pod) {
			budget--
		}
	}
	var sick, well []*corev1.Pod
	for i, pod := range slices.Backward(slots) {
		if i < partition(s.set) {
			break
		}
		switch {
		case !exists(pod), workload.Terminal(pod), pod.DeletionTimestamp != nil, podRevision(pod) == s.update.name:
		case s.unavailable(pod):
			sick = append(sick, pod)
		default:
			well = append(well, pod)
		}
	}
	// In order every Pod is well by now. In parallel those that are not cost nothing to replace: they are unavailable as it is,
	// and waiting for them could take forever.
	if !s.parallel() {
		sick = nil
	}
	var steps []step
	for _, pod := range append(sick, well[:min(max(budget, 0), len(well))]...) {
		steps = append(steps, step{verb: remove, pod: pod, counted: podRevision(pod) == s.current.name})
	}
	return steps
}

// maxUnavailable is how many Pods an update may make unavailable: at least one.
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

// observe counts the Pods that are there.
func (s *state) observe(lists ...[]*corev1.Pod) appsv1.StatefulSetStatus {
	status := appsv1.StatefulSetStatus{
		ObservedGeneration: s.set.Generation, CurrentRevision: s.current.name, UpdateRevision: s.update.name,
		CollisionCount: new(s.collisions), Conditions: s.set.Status.Conditions,
	}
	for _, pod := range slices.Concat(lists...) {
		if !exists(pod) {
			continue
		}
		status.Replicas++
		if running(pod) {
			status.ReadyReplicas++
			if s.available(pod) {
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

// complete ends an update that has reached every Pod: what it brought is what is current.
func complete(set *appsv1.StatefulSet, status *appsv1.StatefulSetStatus) {
	all := int32(replicas(set))
	if status.UpdatedReplicas == all && status.ReadyReplicas == all && status.Replicas == all {
		status.CurrentReplicas = status.UpdatedReplicas
		status.CurrentRevision = status.UpdateRevision
	}
}
