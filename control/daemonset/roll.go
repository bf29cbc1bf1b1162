package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// roll continues a rolling update. It either deletes old Pods, so that the node gets a new one, or creates the new ones
// first, where the set may surge.
func (s *state) roll(p *plan, places []*nodePods) {
	desired := 0
	for _, at := range places {
		if at.shouldRun {
			desired++
		}
	}
	surge := s.scaled(desired, func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxSurge })
	unavailable := s.scaled(desired, func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxUnavailable })
	if surge > 0 {
		s.rollBySurge(p, places, surge, desired)
		return
	}
	if desired > 0 {
		unavailable = max(unavailable, 1) // with 0 the update would never progress
	}
	s.rollByDeleting(p, places, unavailable)
}

// scaled returns a setting of the rolling update as a number: a percentage is of the desired Pods, rounded up.
func (s *state) scaled(desired int, of func(*appsv1.RollingUpdateDaemonSet) *intstr.IntOrString) int {
	r := s.ds.Spec.UpdateStrategy.RollingUpdate
	if r == nil || of(r) == nil || s.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of(r), desired, true)
	if err != nil { // validation rejects such values
		return 0
	}
	return n
}

// surges reports whether a node may have an old and a new Pod during an update.
func (s *state) surges() bool {
	return s.scaled(1, func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxSurge }) > 0
}

// newAndOldPod returns the new and the old Pod of a node that are not being deleted. ok is false if there are several of one kind;
// then the node is not updated yet.
func (s *state) newAndOldPod(at *nodePods) (next, last *corev1.Pod, ok bool) {
	for _, pod := range at.pods {
		side := &last
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case s.isUpdated(pod):
			side = &next
		}
		if *side != nil {
			return nil, nil, false
		}
		*side = pod
	}
	return next, last, true
}

// rollByDeleting deletes old Pods: all that are not available, and as many others as may be unavailable.
func (s *state) rollByDeleting(p *plan, places []*nodePods, budget int) {
	var candidates []*corev1.Pod
	for _, at := range places {
		if !at.shouldRun && len(at.pods) == 0 {
			continue
		}
		next, last, ok := s.newAndOldPod(at)
		switch {
		case !ok, (next == nil) == (last == nil):
			budget--
		case next != nil:
			if !s.isAvailable(next) {
				budget--
			}
		case !s.isAvailable(last):
			p.remove = append(p.remove, last)
			budget--
		default:
			candidates = append(candidates, last)
		}
	}
	p.remove = append(p.remove, candidates[:min(max(budget, 0), len(candidates))]...)
}

// rollBySurge creates new Pods beside old ones: at once where the old one is not available, else as many as may surge. An old
// Pod is deleted when its successor is available or, on a node that should have none, when enough others are available.
func (s *state) rollBySurge(p *plan, places []*nodePods, budget, desired int) {
	var candidates []string
	var misplaced []*corev1.Pod
	spare := -desired // the number of available Pods above the desired number
	for _, at := range places {
		next, last, ok := s.newAndOldPod(at)
		if !ok {
			budget--
			continue
		}
		oldAvailable := last != nil && s.isAvailable(last)
		if oldAvailable || last == nil && next != nil && s.isAvailable(next) {
			spare++
		}
		switch {
		case last == nil, next == nil && !at.exists:
		case next != nil && s.isAvailable(next):
			p.remove = append(p.remove, last)
		case next != nil:
			budget--
		case !at.shouldRun && oldAvailable:
			misplaced = append(misplaced, last)
		case !at.shouldRun:
			p.remove = append(p.remove, last)
		case oldAvailable:
			candidates = append(candidates, at.name)
		default:
			p.create = append(p.create, at.name)
		}
	}
	p.remove = append(p.remove, misplaced[:min(max(spare, 0), len(misplaced))]...)
	p.create = append(p.create, candidates[:min(max(budget, 0), len(candidates))]...)
}
