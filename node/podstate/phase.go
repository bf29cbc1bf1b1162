package podstate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// splitContainerID splits a container ID of the API, such as containerd://abc.
func splitContainerID(id string) (runtime, rest string, ok bool) { return strings.Cut(id, "://") }

// tally counts the containers of a Pod by their state.
type tally struct {
	running, waiting, unknown          int
	stopped, succeeded, final          int // final: will not run again
	initPending, besidePending, failed int // failed: init containers that will not run again
}

// lastTermination returns the termination of a container that has ended, also if it now waits for its restart.
func lastTermination(st *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if st.State.Terminated != nil {
		return st.State.Terminated
	}
	if st.State.Waiting != nil {
		return st.LastTerminationState.Terminated
	}
	return nil
}

func (t *tally) init(p *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) {
	end := lastTermination(st)
	switch {
	case IsSidecar(c):
		switch {
		case st.State.Running != nil:
			t.running++
			if st.Started == nil || !*st.Started {
				t.besidePending++
			}
		case end != nil: // an ended sidecar does not affect the phase
		case st.State.Waiting != nil:
			t.besidePending++
			t.waiting++
		default:
			t.besidePending++
			t.unknown++
		}
	case end == nil || st.State.Running != nil:
		t.initPending++
	case exitInStatus(end).failed() && !shouldRestart(p, c, exitInStatus(end)):
		t.failed++
	case st.State.Waiting != nil && !exitInStatus(end).failed():
		t.initPending++
	}
}

func (t *tally) regular(p *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) {
	end := lastTermination(st)
	switch {
	case st.State.Running != nil:
		t.running++
	case end != nil:
		t.stopped++
		if !shouldRestart(p, c, exitInStatus(end)) {
			t.final++
		}
		if st.State.Terminated != nil && !exitInStatus(end).failed() {
			t.succeeded++
		}
	case st.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// phase computes the phase of a Pod from the states of its containers.
func phase(p *corev1.Pod, st *corev1.PodStatus, ended, begun bool) corev1.PodPhase {
	var t tally
	for i := range st.InitContainerStatuses {
		t.init(p, &p.Spec.InitContainers[i], &st.InitContainerStatuses[i])
	}
	for i := range st.ContainerStatuses {
		t.regular(p, &p.Spec.Containers[i], &st.ContainerStatuses[i])
	}
	switch {
	case t.failed > 0:
		return corev1.PodFailed
	case t.initPending > 0, t.besidePending > 0 && !begun, t.waiting > 0:
		return corev1.PodPending
	case t.running > 0 && t.unknown == 0:
		return corev1.PodRunning
	case t.running == 0 && t.stopped > 0 && t.unknown == 0:
		switch {
		case t.stopped != t.final && (!ended || fact.Static(p)):
			return corev1.PodRunning // until the next run
		case t.stopped == t.succeeded:
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	return corev1.PodPending
}
