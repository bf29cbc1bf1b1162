package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// cutID parts the ID of a container, such as containerd://abc.
func cutID(id string) (runtime, rest string, ok bool) { return strings.Cut(id, "://") }

// tally counts containers by what they do.
type tally struct {
	running, waiting, unknown          int
	stopped, succeeded, final          int // final: will not run again
	initPending, besidePending, failed int // failed: init containers that will not run again
}

// ended is the last end of a container: the one it is in, or the one it waits after.
func ended(st *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if st.State.Terminated != nil {
		return st.State.Terminated
	}
	if st.State.Waiting != nil {
		return st.LastTerminationState.Terminated
	}
	return nil
}

func (t *tally) init(p *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) {
	end := ended(st)
	switch {
	case sidecar(c):
		switch {
		case st.State.Running != nil:
			t.running++
			if st.Started == nil || !*st.Started {
				t.besidePending++
			}
		case end != nil: // an ended sidecar says nothing about the Pod
		case st.State.Waiting != nil:
			t.besidePending++
			t.waiting++
		default:
			t.besidePending++
			t.unknown++
		}
	case end == nil || st.State.Running != nil:
		t.initPending++
	case exitIn(end).failed() && !restarts(p, c, exitIn(end)):
		t.failed++
	case st.State.Waiting != nil && !exitIn(end).failed():
		t.initPending++
	}
}

func (t *tally) regular(p *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) {
	end := ended(st)
	switch {
	case st.State.Running != nil:
		t.running++
	case end != nil:
		t.stopped++
		if !restarts(p, c, exitIn(end)) {
			t.final++
		}
		if st.State.Terminated != nil && !exitIn(end).failed() {
			t.succeeded++
		}
	case st.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// phase is where a Pod is in its life, by what its containers do.
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
			return corev1.PodRunning // on the way to the next run
		case t.stopped == t.succeeded:
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	return corev1.PodPending
}
