package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// roll goes on with an update. Either old Pods are removed, so that the node gets a new one, or new ones come first, where
// the set may surge.
func (s *state) roll(p *plan, places []*place) {
	desired := 0
	for _, at := range places {
		if at.run {
			desired++
		}
	}
	surge := s.scaled(desired, func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxSurge })
	unavailable := s.scaled(desired, func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxUnavailable })
	if surge > 0 {
		s.rollAhead(p, places, surge, desired)
		return
	}
	if desired > 0 {
		unavailable = max(unavailable, 1) // or nothing would ever move
	}
	s.rollOver(p, places, unavailable)
}

// scaled is a setting of the rolling update in numbers: a share is one of the desired Pods, rounded up.
func (s *state) scaled(desired int, of func(*appsv1.RollingUpdateDaemonSet) *intstr.IntOrString) int {
	r := s.ds.Spec.UpdateStrategy.RollingUpdate
	if r == nil || of(r) == nil || s.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of(r), desired, true)
	if err != nil { // validation lets none pass
		return 0
	}
	return n
}

// surges says that a node may have an old and a new Pod during an update.
func (s *state) surges() bool {
	return s.scaled(1, func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxSurge }) > 0
}

// sides are the new and the old Pod of a node, of those that are not being deleted. If there are several of a kind, it is
// not the time to update.
func (s *state) sides(at *place) (next, last *corev1.Pod, ok bool) {
	for _, pod := range at.pods {
		side := &last
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case s.updated(pod):
			side = &next
		}
		if *side != nil {
			return nil, nil, false
		}
		*side = pod
	}
	return next, last, true
}

// rollOver removes old Pods: all that are not available, and of the others as many as may be unavailable.
func (s *state) rollOver(p *plan, places []*place, budget int) {
	var candidates []*corev1.Pod
	for _, at := range places {
		if !at.run && len(at.pods) == 0 {
			continue
		}
		next, last, ok := s.sides(at)
		switch {
		case !ok, (next == nil) == (last == nil):
			budget--
		case next != nil:
			if !s.available(next) {
				budget--
			}
		case !s.available(last):
			p.remove = append(p.remove, last)
			budget--
		default:
			candidates = append(candidates, last)
		}
	}
	p.remove = append(p.remove, candidates[:min(max(budget, 0), len(candidates))]...)
}

// rollAhead makes new Pods beside old ones: at once where the old one is not available, else as many as may surge. An
// old Pod goes when its successor is available, and on a node that should have none when there are enough elsewhere.
func (s *state) rollAhead(p *plan, places []*place, budget, desired int) {
	var candidates []string
	var misplaced []*corev1.Pod
	spare := -desired // how many available Pods there are more than are desired
	for _, at := range places {
		next, last, ok := s.sides(at)
		if !ok {
			budget--
			continue
		}
		well := last != nil && s.available(last)
		if well || last == nil && next != nil && s.available(next) {
			spare++
		}
		switch {
		case last == nil, next == nil && !at.known:
		case next != nil && s.available(next):
			p.remove = append(p.remove, last)
		case next != nil:
			budget--
		case !at.run && well:
			misplaced = append(misplaced, last)
		case !at.run:
			p.remove = append(p.remove, last)
		case well:
			candidates = append(candidates, at.name)
		default:
			p.create = append(p.create, at.name)
		}
	}
	p.remove = append(p.remove, misplaced[:min(max(spare, 0), len(misplaced))]...)
	p.create = append(p.create, candidates[:min(max(budget, 0), len(candidates))]...)
}
