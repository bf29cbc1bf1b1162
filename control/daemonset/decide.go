package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/lib/workload"
)

// burst bounds the Pods that are created, and those that are deleted, by one reconcile.
const burst = 250

// state has the objects of one reconcile.
type state struct {
	ds    *appsv1.DaemonSet
	nodes []*corev1.Node
	pods  []*corev1.Pod
	hash  string // of the current revision
	now   time.Time
	// removalDelay returns how long the deletion of a failed Pod of a node must still wait.
	removalDelay func(node string) time.Duration
}

// plan is what one reconcile does.
type plan struct {
	create []string // nodes that get a Pod
	remove []*corev1.Pod
	// failed are the nodes whose failed Pods are deleted, so that their back-off grows.
	failed []string
	events []event
	status appsv1.DaemonSetStatus
	again  time.Duration
}

// event is an Event to record about the set.
type event struct{ kind, reason, message string }

// decide plans one reconcile of a set. Missing Pods are created and superfluous ones deleted first; a rolling update
// continues only when nothing of that is left to do.
func decide(s *state) plan {
	fits := newNodeFit(s.ds)
	places := s.podsByNode(fits)
	p := plan{status: s.status(places)}
	for _, at := range places {
		s.manage(&p, at)
	}
	if len(p.create)+len(p.remove) == 0 && s.ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		s.roll(&p, places)
	}
	p.create, p.remove = p.create[:min(len(p.create), burst)], p.remove[:min(len(p.remove), burst)]
	if s.ds.Spec.MinReadySeconds > 0 {
		p.reconcileAfter(workload.NextAvailable(s.pods, s.ds.Spec.MinReadySeconds, s.now))
	}
	return p
}

// reconcileAfter makes the set be reconciled again after a while.
func (p *plan) reconcileAfter(after time.Duration) {
	if after > 0 && (p.again == 0 || after < p.again) {
		p.again = after
	}
}

// nodePods is a node, which may no longer exist, with the set's Pods on it.
type nodePods struct {
	name               string
	exists             bool
	shouldRun, mayStay bool
	pods               []*corev1.Pod
}

// podsByNode returns the nodes sorted by name, including deleted ones that still have Pods. Pods that have ended and are being
// deleted do not count.
func (s *state) podsByNode(fits *nodeFit) []*nodePods {
	all := map[string]*nodePods{}
	for _, node := range s.nodes {
		run, stay := fits.on(node)
		all[node.Name] = &nodePods{name: node.Name, exists: true, shouldRun: run, mayStay: stay}
	}
	for _, pod := range s.pods {
		name := targetNode(pod)
		if name == "" || workload.IsTerminal(pod) && pod.DeletionTimestamp != nil {
			continue
		}
		if all[name] == nil {
			all[name] = &nodePods{name: name}
		}
		all[name].pods = append(all[name].pods, pod)
	}
	out := make([]*nodePods, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sortOldestFirst(all[name].pods)
		out = append(out, all[name])
	}
	return out
}

// manage plans the creation of a missing Pod, and the deletion of superfluous and finished ones, on one node.
func (s *state) manage(p *plan, at *nodePods) {
	switch {
	case !at.exists: // the garbage collector deletes Pods that were bound to the node, but not the others
		for _, pod := range at.pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				p.remove = append(p.remove, pod)
			}
		}
	case at.shouldRun && len(at.pods) == 0:
		p.create = append(p.create, at.name)
	case at.mayStay:
		alive := s.removeFinished(p, at)
		if s.surges() {
			s.pairForSurge(p, at, alive)
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

// removeFinished deletes the finished Pods of a node and returns the others. Failed Pods are deleted with back-off, because a node
// that rejects Pods would make new ones fail at once.
func (s *state) removeFinished(p *plan, at *nodePods) (alive []*corev1.Pod) {
	failed := false
	for _, pod := range at.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case pod.Status.Phase == corev1.PodFailed && (failed || s.removalDelay(at.name) > 0):
			p.reconcileAfter(max(s.removalDelay(at.name), time.Second))
		case pod.Status.Phase == corev1.PodFailed:
			failed = true
			p.failed = append(p.failed, at.name)
			p.remove = append(p.remove, pod)
			p.events = append(p.events, event{corev1.EventTypeWarning, "FailedDaemonPod",
				fmt.Sprintf("Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, at.name)})
		case pod.Status.Phase == corev1.PodSucceeded:
			p.remove = append(p.remove, pod)
			p.events = append(p.events, event{corev1.EventTypeNormal, "SucceededDaemonPod",
				fmt.Sprintf("Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, at.name)})
		default:
			alive = append(alive, pod)
		}
	}
	return alive
}

// pairForSurge keeps an old Pod beside its successor, where an update may surge, as long as the old one is ready and the new one not
// available.
func (s *state) pairForSurge(p *plan, at *nodePods, alive []*corev1.Pod) {
	if len(alive) <= 1 {
		if len(alive) == 0 && at.shouldRun {
			p.create = append(p.create, at.name)
		}
		return
	}
	var next, last *corev1.Pod
	for _, pod := range alive {
		isNew := pod.Labels[hashLabel] == s.hash
		switch {
		case isNew && next == nil:
			next = pod
		case !isNew && last == nil:
			last = pod
		default:
			p.remove = append(p.remove, pod)
		}
	}
	if next != nil && last != nil && (!workload.IsReady(last) || s.isAvailable(next)) {
		p.remove = append(p.remove, last)
	}
}

func (s *state) isAvailable(pod *corev1.Pod) bool {
	return workload.IsAvailable(pod, s.ds.Spec.MinReadySeconds, s.now)
}

// status returns the status of the set. Of several Pods on a node the oldest one counts.
func (s *state) status(places []*nodePods) appsv1.DaemonSetStatus {
	status := *s.ds.Status.DeepCopy()
	status.ObservedGeneration = s.ds.Generation
	var desired, current, misplaced, ready, updated, available int32
	for _, at := range places {
		switch {
		case !at.exists:
		case !at.shouldRun:
			if len(at.pods) > 0 {
				misplaced++
			}
		case len(at.pods) == 0:
			desired++
		default:
			desired++
			current++
			pod := at.pods[0]
			if workload.IsReady(pod) {
				ready++
				if s.isAvailable(pod) {
					available++
				}
			}
			if s.isUpdated(pod) {
				updated++
			}
		}
	}
	status.DesiredNumberScheduled, status.CurrentNumberScheduled, status.NumberMisscheduled = desired, current, misplaced
	status.NumberReady, status.UpdatedNumberScheduled = ready, updated
	status.NumberAvailable, status.NumberUnavailable = available, desired-available
	return status
}
