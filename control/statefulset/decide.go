package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/lib/workload"
)

// state has the objects of one reconcile.
type state struct {
	set  *appsv1.StatefulSet
	pods []*corev1.Pod
	// claim returns a claim in the set's namespace, or nil.
	claim func(name string) *corev1.PersistentVolumeClaim
	// current is the revision before an update, and update the one that Pods get.
	current, update version
	collisions      int32
	now             time.Time
}

// version is a revision: its name, and the set with its template.
type version struct {
	name string
	set  *appsv1.StatefulSet
}

// plan is what to do, stage by stage until one fails, and the status before that.
type plan struct {
	stages []stage
	status appsv1.StatefulSetStatus
}

// stage is a list of steps, to be carried out one after the other or concurrently.
type stage struct {
	parallel bool
	steps    []step
}

// verb is what a step does to its Pod.
type verb string

const (
	create     verb = "Create"
	update     verb = "Update"
	remove     verb = "Delete"
	claimsOnly verb = "Tend" // only its claims
)

// step is the work on one Pod.
type step struct {
	verb verb
	// pod of a Pod to be created has only its name and namespace.
	pod *corev1.Pod
	// claims are to be created before the Pod; refs are existing claims whose owners change, after a new Pod is created or
	// before an existing one is updated.
	claims, refs []*corev1.PersistentVolumeClaim
	// conflicting are the names of claims with a conflicting controller.
	conflicting []string
	// blocked are the reasons why the Pod cannot be created or updated yet.
	blocked []error
	// counted is true if the Pod is one of the status's current replicas, from which it is subtracted when it is deleted.
	counted bool
}

// empty reports whether there is nothing to do.
func (st *step) empty() bool {
	return st.verb == claimsOnly && len(st.claims)+len(st.refs)+len(st.blocked) == 0
}

// burst bounds the Pods that one reconcile of a parallel set creates.
const burst = 500

// decide plans one reconcile of a set. Unless the set is managed in parallel, at most one Pod is created or deleted for
// scaling, in the order of ordinals, and only while all other Pods are available. Updates wait until scaling is complete.
func decide(s *state) plan {
	slots, condemned := s.split()
	p := plan{status: s.status(slots, condemned)}
	if s.set.DeletionTimestamp != nil {
		return p
	}
	parallel := s.isParallel()
	unavailable := s.firstUnavailable(slots, condemned)
	for _, part := range []func() ([]step, bool){
		func() ([]step, bool) { return s.reconcileWanted(slots) },
		func() ([]step, bool) { return s.updateClaimOwners(condemned), true },
		func() ([]step, bool) { return s.deleteCondemned(condemned, unavailable) },
	} {
		steps, proceed := part()
		if len(steps) > 0 {
			p.stages = append(p.stages, stage{parallel, steps})
		}
		if !proceed {
			return p
		}
	}
	if s.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
		if steps := s.roll(slots); len(steps) > 0 {
			p.stages = append(p.stages, stage{steps: steps})
		}
	}
	return p
}

func (s *state) isParallel() bool {
	return s.set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
}

// split returns the Pods of wanted ordinals in their order, with new ones for the lowest missing ordinals, as many as one reconcile
// creates, and the condemned Pods from the highest ordinal down. Ordinals that wait for a claim to be deleted do not count as created.
func (s *state) split() (slots, condemned []*corev1.Pod) {
	var wanted []*corev1.Pod
	for _, pod := range s.pods {
		switch n := ordinal(s.set, pod); {
		case isWanted(s.set, n):
			wanted = append(wanted, pod)
		case n >= 0:
			condemned = append(condemned, pod)
		}
	}
	slices.SortFunc(wanted, func(a, b *corev1.Pod) int { return ordinal(s.set, a) - ordinal(s.set, b) })
	slices.SortFunc(condemned, func(a, b *corev1.Pod) int { return ordinal(s.set, b) - ordinal(s.set, a) })
	room := burst
	switch {
	case s.set.DeletionTimestamp != nil:
		room = 0
	case !s.isParallel():
		room = 1
	}
	next := start(s.set)
	fill := func(end int) {
		for ; next < end && room > 0; next++ {
			slots = append(slots, s.placeholder(next))
			if !s.hasStaleClaim(next) {
				room--
			}
		}
	}
	for _, pod := range wanted {
		n := ordinal(s.set, pod)
		fill(n)
		slots, next = append(slots, pod), n+1
	}
	fill(start(s.set) + replicas(s.set))
	return slots, condemned
}

// exists reports whether a Pod is stored, and not still to be created.
func exists(pod *corev1.Pod) bool { return pod.UID != "" }

func isRunningAndReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && workload.IsReady(pod)
}

func (s *state) isAvailable(pod *corev1.Pod) bool {
	return workload.IsAvailable(pod, s.set.Spec.MinReadySeconds, s.now)
}

func (s *state) isUnavailable(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || !s.isAvailable(pod)
}

// firstUnavailable returns the unavailable Pod with the lowest ordinal, of the wanted ones first; nil if there is none.
func (s *state) firstUnavailable(slots, condemned []*corev1.Pod) *corev1.Pod {
	for _, pod := range slots {
		if s.isUnavailable(pod) {
			return pod
		}
	}
	for _, pod := range slices.Backward(condemned) {
		if s.isUnavailable(pod) {
			return pod
		}
	}
	return nil
}

// reconcileWanted plans the creation and update of the wanted Pods. proceed is true if all are available, or need not be.
func (s *state) reconcileWanted(slots []*corev1.Pod) (steps []step, proceed bool) {
	for _, pod := range slots {
		st, stop := s.reconcilePod(pod)
		if !st.empty() {
			steps = append(steps, st)
		}
		if stop && !s.isParallel() {
			return steps, false
		}
	}
	return steps, true
}

// reconcilePod decides about one wanted Pod. stop is true if the Pods after it must wait.
func (s *state) reconcilePod(pod *corev1.Pod) (st step, stop bool) {
	n := ordinal(s.set, pod)
	st = step{verb: claimsOnly, pod: pod}
	switch {
	case workload.IsTerminal(pod): // it is created again once its deletion has finished
		if pod.DeletionTimestamp == nil {
			st.verb = remove
		}
		return st, true
	case !exists(pod):
		if !s.hasStaleClaim(n) {
			st.verb = create
			s.claims(&st, true)
		}
		return st, true
	}
	available := pod.DeletionTimestamp == nil && isRunningAndReady(pod) && s.isAvailable(pod)
	if !available && !s.isParallel() {
		if pod.Status.Phase == corev1.PodPending {
			s.claims(&st, true)
		}
		return st, true
	}
	s.claims(&st, pod.Status.Phase == corev1.PodPending || !hasClaimVolumes(s.set, pod, n))
	if hasVolumes := hasClaimVolumes(s.set, pod, n); !hasVolumes || !hasIdentityLabels(pod) || len(st.refs) > 0 {
		st.verb, st.pod = update, pod.DeepCopy()
		if !hasIdentityLabels(pod) {
			setIdentityLabels(st.pod, n)
		}
		if !hasVolumes {
			mountClaims(s.set, st.pod, n)
		}
	}
	return st, !available
}

// updateClaimOwners updates the owners of the claims of condemned Pods, before the Pods are deleted.
func (s *state) updateClaimOwners(condemned []*corev1.Pod) (steps []step) {
	for _, pod := range condemned {
		st := step{verb: claimsOnly, pod: pod}
		if s.claims(&st, false); !st.empty() {
			steps = append(steps, st)
		}
	}
	return steps
}

// deleteCondemned deletes condemned Pods. Unless the set is parallel, it deletes one at a time, from the highest ordinal down, and
// none while one before it is unavailable.
func (s *state) deleteCondemned(condemned []*corev1.Pod, unavailable *corev1.Pod) (steps []step, proceed bool) {
	for _, pod := range condemned {
		terminating := pod.DeletionTimestamp != nil
		switch {
		case s.isParallel():
			if !terminating {
				steps = append(steps, step{verb: remove, pod: pod})
			}
		case terminating, (!isRunningAndReady(pod) || !s.isAvailable(pod)) && pod != unavailable:
			return nil, false
		default:
			return []step{{verb: remove, pod: pod}}, false
		}
	}
	return steps, true
}
