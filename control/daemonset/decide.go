package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/workload"
)

// burst is how many Pods are made, and how many removed, in one look.
const burst = 250

// state is what one look sees.
type state struct {
	ds    *appsv1.DaemonSet
	nodes []*corev1.Node
	pods  []*corev1.Pod
	hash  string // of the revision that the set has now
	now   time.Time
	// held is how long the removal of a failed Pod of a node must still wait.
	held func(node string) time.Duration
}

// plan is what to do.
type plan struct {
	create []string // nodes that get a Pod
	remove []*corev1.Pod
	// failed are the nodes whose failed Pods are removed: the next time has to wait for longer.
	failed []string
	notes  []note
	status appsv1.DaemonSetStatus
	again  time.Duration
}

// note is something to tell people.
type note struct{ kind, reason, message string }

// decide plans one look at a set. First every node gets what it should have and loses what it should not; an update goes
// on only when there is nothing of that kind left to do.
func decide(s *state) plan {
	fits := fitOf(s.ds)
	places := s.places(fits)
	p := plan{status: s.observe(places)}
	for _, at := range places {
		s.manage(&p, at)
	}
	if len(p.create)+len(p.remove) == 0 && s.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		s.roll(&p, places)
	}
	p.create, p.remove = p.create[:min(len(p.create), burst)], p.remove[:min(len(p.remove), burst)]
	if s.ds.Spec.MinReadySeconds > 0 {
		p.wake(workload.NextAvailable(s.pods, s.ds.Spec.MinReadySeconds, s.now))
	}
	return p
}

// wake asks for another look after a while.
func (p *plan) wake(after time.Duration) {
	if after > 0 && (p.again == 0 || after < p.again) {
		p.again = after
	}
}

// place is a node, or the name of one that is gone, with the set's Pods there.
type place struct {
	name      string
	known     bool
	run, stay bool
	pods      []*corev1.Pod
}

// places are the nodes in the order of their names, and those that are gone but still have Pods. Pods that have ended
// and are being deleted anyway count no more.
func (s *state) places(fits *fit) []*place {
	all := map[string]*place{}
	for _, node := range s.nodes {
		run, stay := fits.on(node)
		all[node.Name] = &place{name: node.Name, known: true, run: run, stay: stay}
	}
	for _, pod := range s.pods {
		name := target(pod)
		if name == "" || workload.Terminal(pod) && pod.DeletionTimestamp != nil {
			continue
		}
		if all[name] == nil {
			all[name] = &place{name: name}
		}
		all[name].pods = append(all[name].pods, pod)
	}
	out := make([]*place, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		oldestFirst(all[name].pods)
		out = append(out, all[name])
	}
	return out
}

// manage gives a node what it should have.
func (s *state) manage(p *plan, at *place) {
	switch {
	case !at.known: // Pods that are bound go with their node; nobody else removes the others
		for _, pod := range at.pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				p.remove = append(p.remove, pod)
			}
		}
	case at.run && len(at.pods) == 0:
		p.create = append(p.create, at.name)
	case at.stay:
		alive := s.clear(p, at)
		if s.surges() {
			s.pair(p, at, alive)
		} else if len(alive) > 1 {
			p.remove = append(p.remove, alive[1:]...)
		}
	default:
		for _, pod := range at.pods {
			if pod.DeletionTimestamp == nil {
				p.remove = append(p.remove, pod)
			}
		}
	}
}

// clear removes the Pods of a node that have ended and returns those that have not. A node that rejects Pods would make
// them fail as fast as they come, so failed ones go slower and slower.
func (s *state) clear(p *plan, at *place) (alive []*corev1.Pod) {
	failed := false
	for _, pod := range at.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed && (failed || s.held(at.name) > 0):
			p.wake(max(s.held(at.name), time.Second))
		case pod.Status.Phase == corev1.PodFailed:
			failed = true
			p.failed = append(p.failed, at.name)
			p.remove = append(p.remove, pod)
			p.notes = append(p.notes, note{corev1.EventTypeWarning, "FailedDaemonPod",
				fmt.Sprintf("Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, at.name)})
		case pod.Status.Phase == corev1.PodSucceeded:
			p.remove = append(p.remove, pod)
			p.notes = append(p.notes, note{corev1.EventTypeNormal, "SucceededDaemonPod",
				fmt.Sprintf("Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, at.name)})
		default:
			alive = append(alive, pod)
		}
	}
	return alive
}

// pair keeps, where an update may surge, an old Pod beside its successor: as long as the old one is ready and the new
// one not available.
func (s *state) pair(p *plan, at *place, alive []*corev1.Pod) {
	if len(alive) <= 1 {
		if len(alive) == 0 && at.run {
			p.create = append(p.create, at.name)
		}
		return
	}
	var next, last *corev1.Pod
	for _, pod := range alive {
		fresh := pod.Labels[hashLabel] == s.hash
		switch {
		case fresh && next == nil:
			next = pod
		case !fresh && last == nil:
			last = pod
		default:
			p.remove = append(p.remove, pod)
		}
	}
	if next != nil && last != nil && (!workload.Ready(last) || s.available(next)) {
		p.remove = append(p.remove, last)
	}
}

func (s *state) available(pod *corev1.Pod) bool {
	return workload.Available(pod, s.ds.Spec.MinReadySeconds, s.now)
}

// observe counts. The oldest Pod of a node is the one that counts.
func (s *state) observe(places []*place) appsv1.DaemonSetStatus {
	status := *s.ds.Status.DeepCopy()
	status.ObservedGeneration = s.ds.Generation
	var desired, current, misplaced, ready, updated, available int32
	for _, at := range places {
		switch {
		case !at.known:
		case !at.run:
			if len(at.pods) > 0 {
				misplaced++
			}
		case len(at.pods) == 0:
			desired++
		default:
			desired++
			current++
			pod := at.pods[0]
			if workload.Ready(pod) {
				ready++
				if s.available(pod) {
					available++
				}
			}
			if s.updated(pod) {
				updated++
			}
		}
	}
	status.DesiredNumberScheduled, status.CurrentNumberScheduled, status.NumberMisscheduled = desired, current, misplaced
	status.NumberReady, status.UpdatedNumberScheduled = ready, updated
	status.NumberAvailable, status.NumberUnavailable = available, desired-available
	return status
}
