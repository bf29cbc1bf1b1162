package statefulset

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/workload"
)

// state is what one look sees.
type state struct {
	set  *appsv1.StatefulSet
	pods []*corev1.Pod
	// claim finds a claim in the set's namespace, or nil.
	claim func(name string) *corev1.PersistentVolumeClaim
	// current is what Pods are until an update has gone through, update is what they become.
	current, update version
	collisions      int32
	now             time.Time
}

// version is a revision: its name, and the set with its template.
type version struct {
	name string
	set  *appsv1.StatefulSet
}

// plan is what to do: stage after stage, until one fails. status is what the set has now.
type plan struct {
	stages []stage
	status appsv1.StatefulSetStatus
}

// stage is a list of steps, to be done one after the other or together.
type stage struct {
	together bool
	steps    []step
}

// verb is what a step does to its Pod.
type verb string

const (
	create verb = "Create"
	update verb = "Update"
	remove verb = "Delete"
	tend   verb = "Tend" // only its claims
)

// step is the work on one Pod.
type step struct {
	verb verb
	pod  *corev1.Pod
	// claims are to be created, before the Pod; refs are there and get other owners: after a new Pod, before any other.
	claims, refs []*corev1.PersistentVolumeClaim
	// strange are names of claims whose owners keep the policy from being followed.
	strange []string
	// blocked says why the Pod cannot be made or kept yet.
	blocked []error
	// counted says that the Pod is one of the status's current replicas, which it is no more when it is deleted.
	counted bool
}

// empty says that there is nothing to do.
func (st *step) empty() bool {
	return st.verb == tend && len(st.claims)+len(st.refs)+len(st.blocked) == 0
}

// decide plans one look at a set. Unless the set is managed in parallel, at most one Pod is created or removed for
// scaling, in the order of ordinals up and down, and only while every other Pod is well. Updates wait until scaling is
// through.
func decide(s *state) plan {
	slots, condemned := s.split()
	p := plan{status: s.observe(slots, condemned)}
	if s.set.DeletionTimestamp != nil {
		return p
	}
	together := s.parallel()
	sick := s.firstUnavailable(slots, condemned)
	for _, part := range []func() ([]step, bool){
		func() ([]step, bool) { return s.keep(slots) },
		func() ([]step, bool) { return s.release(condemned), true },
		func() ([]step, bool) { return s.condemn(condemned, sick) },
	} {
		steps, on := part()
		if len(steps) > 0 {
			p.stages = append(p.stages, stage{together, steps})
		}
		if !on {
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

func (s *state) parallel() bool {
	return s.set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
}

// split puts the Pods that are wanted into the slots of their ordinals, with new ones where none is, and the others into
// a list from the highest ordinal down.
func (s *state) split() (slots, condemned []*corev1.Pod) {
	slots = make([]*corev1.Pod, replicas(s.set))
	for _, pod := range s.pods {
		switch n := ordinal(s.set, pod); {
		case wanted(s.set, n):
			slots[n-start(s.set)] = pod
		case n >= 0:
			condemned = append(condemned, pod)
		}
	}
	for i := range slots {
		if slots[i] == nil {
			slots[i] = s.newPod(start(s.set) + i)
		}
	}
	slices.SortFunc(condemned, func(a, b *corev1.Pod) int { return ordinal(s.set, b) - ordinal(s.set, a) })
	return slots, condemned
}

// exists tells a stored Pod from one that is to be made.
func exists(pod *corev1.Pod) bool { return pod.UID != "" }

func running(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && workload.Ready(pod)
}

func (s *state) available(pod *corev1.Pod) bool {
	return workload.Available(pod, s.set.Spec.MinReadySeconds, s.now)
}

func (s *state) unavailable(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || !s.available(pod)
}

// firstUnavailable is the Pod with the lowest ordinal that is not well, first among those that are wanted.
func (s *state) firstUnavailable(slots, condemned []*corev1.Pod) *corev1.Pod {
	for _, pod := range slots {
		if s.unavailable(pod) {
			return pod
		}
	}
	for _, pod := range slices.Backward(condemned) {
		if s.unavailable(pod) {
			return pod
		}
	}
	return nil
}

// keep brings the wanted Pods into being and keeps them what they should be. on says that all are well, or need not be.
func (s *state) keep(slots []*corev1.Pod) (steps []step, on bool) {
	for _, pod := range slots {
		st, stop := s.keepOne(pod)
		if !st.empty() {
			steps = append(steps, st)
		}
		if stop && !s.parallel() {
			return steps, false
		}
	}
	return steps, true
}

// keepOne decides about one wanted Pod. stop says that Pods after it must wait.
func (s *state) keepOne(pod *corev1.Pod) (st step, stop bool) {
	n := ordinal(s.set, pod)
	st = step{verb: tend, pod: pod}
	switch {
	case workload.Terminal(pod): // however it ended, it comes back once it is gone
		if pod.DeletionTimestamp == nil {
			st.verb = remove
		}
		return st, true
	case !exists(pod):
		if !s.stale(n) {
			st.verb = create
			s.claims(&st, true)
		}
		return st, true
	}
	well := pod.DeletionTimestamp == nil && running(pod) && s.available(pod)
	if !well && !s.parallel() {
		if pod.Status.Phase == corev1.PodPending {
			s.claims(&st, true)
		}
		return st, true
	}
	s.claims(&st, pod.Status.Phase == corev1.PodPending || !mounted(s.set, pod, n))
	if here := mounted(s.set, pod, n); !here || !identified(pod) || len(st.refs) > 0 {
		st.verb, st.pod = update, pod.DeepCopy()
		if !identified(pod) {
			identify(st.pod, n)
		}
		if !here {
			mountClaims(s.set, st.pod, n)
		}
	}
	return st, !well
}

// release gives the claims of Pods that are not wanted the owners they need before the Pods go.
func (s *state) release(condemned []*corev1.Pod) (steps []step) {
	for _, pod := range condemned {
		st := step{verb: tend, pod: pod}
		if s.claims(&st, false); !st.empty() {
			steps = append(steps, st)
		}
	}
	return steps
}

// condemn removes Pods that are not wanted. In order, one goes after the other, from the highest ordinal down, and none
// while one before it is not well.
func (s *state) condemn(condemned []*corev1.Pod, sick *corev1.Pod) (steps []step, on bool) {
	for _, pod := range condemned {
		leaving := pod.DeletionTimestamp != nil
		switch {
		case s.parallel():
			if !leaving {
				steps = append(steps, step{verb: remove, pod: pod})
			}
		case leaving, (!running(pod) || !s.available(pod)) && pod != sick:
			return nil, false
		default:
			return []step{{verb: remove, pod: pod}}, false
		}
	}
	return steps, true
}
