package simulate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// containers computes the present states of the containers of one Pod.
type containers struct {
	pod       *corev1.Pod
	behaviour *Behaviour
	now       time.Time
	had       *corev1.PodStatus

	ready  bool
	again  time.Duration
	events []event
}

// wakeAt asks for another reconcile at a time.
func (w *containers) wakeAt(at time.Time) {
	if d := at.Sub(w.now); d > 0 && (w.again == 0 || d < w.again) {
		w.again = d
	}
}

// run sets the states of all containers: first the init containers, one after the other, then the others together.
func (w *containers) run(st *corev1.PodStatus) {
	started := true
	st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses = nil, nil, nil
	for i := range w.pod.Spec.InitContainers {
		c := &w.pod.Spec.InitContainers[i]
		cs := w.container(c, find(w.had.InitContainerStatuses, c.Name), started)
		st.InitContainerStatuses = append(st.InitContainerStatuses, cs)
		if restarts(w.pod, c.Name) {
			started = started && cs.State.Running != nil
		} else {
			started = started && cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
		}
	}
	w.ready = started && len(w.pod.Spec.Containers) > 0
	for i := range w.pod.Spec.Containers {
		c := &w.pod.Spec.Containers[i]
		cs := w.container(c, find(w.had.ContainerStatuses, c.Name), started)
		w.ready = w.ready && (cs.Ready || cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0 &&
			w.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways)
		st.ContainerStatuses = append(st.ContainerStatuses, cs)
	}
	for i := range w.pod.Spec.EphemeralContainers {
		e := &w.pod.Spec.EphemeralContainers[i]
		c := corev1.Container(e.EphemeralContainerCommon)
		st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses,
			w.container(&c, find(w.had.EphemeralContainerStatuses, c.Name), started))
	}
}

func find(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// restarts reports whether a container is restarted whenever it ends, as sidecars are.
func restarts(p *corev1.Pod, name string) bool {
	for _, c := range p.Spec.InitContainers {
		if c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return p.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// container computes the present state of one container. may says that the containers before it let it start.
func (w *containers) container(c *corev1.Container, had *corev1.ContainerStatus, may bool) corev1.ContainerStatus {
	cs := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: new(false), AllocatedResources: c.Resources.Requests}
	if had != nil {
		cs = *had.DeepCopy()
	}
	if len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
		cs.Resources = &corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
		cs.AllocatedResources = c.Resources.Requests
	}
	switch {
	case w.behaviour.unknown(c.Image):
		message := fmt.Sprintf("Back-off pulling image %q", c.Image)
		if cs.State.Waiting == nil || cs.State.Waiting.Reason != "ImagePullBackOff" {
			w.recordEvent(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: not found", c.Image))
			w.recordEvent(corev1.EventTypeNormal, "BackOff", message)
		}
		cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: message}}
	case !may && cs.State.Running == nil && cs.State.Terminated == nil:
		cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	case cs.State.Terminated != nil:
		w.restart(c, &cs)
	case cs.State.Running == nil && cs.LastTerminationState.Terminated != nil:
		w.backOff(c, &cs)
	case cs.State.Running == nil:
		w.start(c, &cs, w.now)
	}
	w.progress(c, &cs)
	return cs
}

// start starts a container.
func (w *containers) start(c *corev1.Container, cs *corev1.ContainerStatus, at time.Time) {
	cs.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at)}}
	cs.Image, cs.ImageID = c.Image, "simulated://"+c.Image
	cs.ContainerID = fmt.Sprintf("simulated://%s/%s/%d", w.pod.UID, c.Name, cs.RestartCount)
	if cs.RestartCount == 0 {
		w.recordEvent(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", c.Image))
	}
	w.recordEvent(corev1.EventTypeNormal, "Created", "Container created")
	w.recordEvent(corev1.EventTypeNormal, "Started", "Container started")
}

func (w *containers) recordEvent(kind, reason, message string) {
	w.events = append(w.events, event{kind, reason, message})
}

// progress ends a container whose time is over, and makes one ready that has run long enough.
func (w *containers) progress(c *corev1.Container, cs *corev1.ContainerStatus) {
	r := cs.State.Running
	cs.Ready, cs.Started = false, new(r != nil)
	if r == nil {
		return
	}
	l := lifeOf(w.pod, c)
	if isInit(w.pod, c.Name) && !restarts(w.pod, c.Name) {
		l.ends = true // the regular containers wait for it
	}
	if end := r.StartedAt.Add(l.after); l.ends && !w.now.Before(end) {
		reason := "Completed"
		if l.code != 0 {
			reason = "Error"
		}
		terminate(cs, l.code, reason, end)
		cs.Started = new(false)
		w.restart(c, cs)
		return
	} else if l.ends {
		w.wakeAt(end)
	}
	wait := delay(w.pod, ReadyAnnotation, w.behaviour.Ready)
	if c.ReadinessProbe != nil {
		wait += time.Duration(c.ReadinessProbe.InitialDelaySeconds) * time.Second
	}
	at := r.StartedAt.Add(wait)
	if cs.Ready = !w.now.Before(at); !cs.Ready {
		w.wakeAt(at)
	}
}

func terminate(cs *corev1.ContainerStatus, code int32, reason string, at time.Time) {
	t := &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(at), ContainerID: cs.ContainerID}
	if r := cs.State.Running; r != nil {
		t.StartedAt = r.StartedAt
	}
	cs.State, cs.Ready = corev1.ContainerState{Terminated: t}, false
}

// restart begins the back-off of an ended container that is to be restarted.
func (w *containers) restart(c *corev1.Container, cs *corev1.ContainerStatus) {
	t := cs.State.Terminated
	again := restarts(w.pod, c.Name) || w.pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && t.ExitCode != 0
	if isInit(w.pod, c.Name) && !restarts(w.pod, c.Name) {
		again = t.ExitCode != 0 && w.pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	}
	if !again {
		return
	}
	cs.LastTerminationState, cs.State = corev1.ContainerState{Terminated: t}, corev1.ContainerState{}
	w.backOff(c, cs)
}

func isInit(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

// The back-off between restarts, as on real nodes.
const (
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
)

// backOff lets an ended container wait, longer each time, and restarts it then. The first restart does not wait.
func (w *containers) backOff(c *corev1.Container, cs *corev1.ContainerStatus) {
	var wait time.Duration
	if n := cs.RestartCount; n > 0 {
		wait = min(firstBackOff<<min(n-1, 10), lastBackOff)
	}
	at := cs.LastTerminationState.Terminated.FinishedAt.Add(wait)
	if w.now.Before(at) {
		message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, c.Name, w.pod.Name, w.pod.Namespace,
			w.pod.UID)
		cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: message}}
		w.wakeAt(at)
		return
	}
	cs.RestartCount++
	w.start(c, cs, w.now)
	w.wakeAt(w.now.Add(lifeOf(w.pod, c).after + time.Millisecond))
}
