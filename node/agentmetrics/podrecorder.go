package agentmetrics

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// PodRecorder records the life of one Pod, each event once. It is for one goroutine. A nil recorder records nothing.
type PodRecorder struct {
	m          *Metrics
	firstSeen  time.Time         // when this agent first saw the Pod
	runs       bool              // the start of the Pod was recorded
	terminated map[string]string // the last run of each container whose end was counted, by the container's name

	syncBegan time.Time // when the sync under way began; zero if there is none
	syncType  SyncType
	syncedFor *corev1.Pod // the version of the Pod for which the last sync began
}

// NewPodRecorder returns a recorder for a Pod that the agent sees for the first time.
func (m *Metrics) NewPodRecorder(now time.Time) *PodRecorder {
	return &PodRecorder{m: m, firstSeen: now}
}

// BeginSync notes that the worker of the Pod begins to reconcile. It does nothing if the work of the last sync is still under
// way. isEnding says that the Pod terminates.
func (r *PodRecorder) BeginSync(p *corev1.Pod, isEnding bool) {
	if r == nil || !r.syncBegan.IsZero() {
		return
	}
	before := r.syncedFor
	r.syncBegan, r.syncedFor = time.Now(), p
	switch {
	case isEnding:
		r.syncType = SyncKill
	case before == nil:
		r.syncType = SyncCreate
	case before.Generation != p.Generation || !maps.Equal(before.Labels, p.Labels) || !maps.Equal(before.Annotations, p.Annotations):
		r.syncType = SyncUpdate
	default:
		r.syncType = SyncOther
	}
}

// EndSync records the sync under way, unless some of the work that it started is still busy.
func (r *PodRecorder) EndSync(isBusy bool) {
	if r != nil && !isBusy {
		r.m.PodSynced(r.syncType, time.Since(r.syncBegan))
		r.syncBegan = time.Time{}
	}
}

// Status records what a status says that was written: that the Pod runs now, and which containers have ended. p is the Pod with
// its status before.
func (r *PodRecorder) Status(p *corev1.Pod, f *fact.Pod, st *corev1.PodStatus) {
	if r == nil {
		return
	}
	if !r.runs && st.Phase == corev1.PodRunning {
		r.runs = true
		if (p.Status.Phase == "" || p.Status.Phase == corev1.PodPending) && !ranBefore(f, r.firstSeen) {
			r.m.PodRuns(time.Since(r.firstSeen))
		}
	}
	r.terminations(InitContainer, p.Status.InitContainerStatuses, st.InitContainerStatuses)
	r.terminations(Container, p.Status.ContainerStatuses, st.ContainerStatuses)
	r.terminations(EphemeralContainer, p.Status.EphemeralContainerStatuses, st.EphemeralContainerStatuses)
}

// ranBefore reports whether a container of the Pod was started before a time.
func ranBefore(f *fact.Pod, t time.Time) bool {
	for i := range f.Containers {
		if started := f.Containers[i].Started; !started.IsZero() && started.Before(t) {
			return true
		}
	}
	return false
}

// terminations counts the containers that have terminated since the status before.
func (r *PodRecorder) terminations(t ContainerType, before, now []corev1.ContainerStatus) {
	for i := range now {
		end := now[i].State.Terminated
		if end == nil || r.terminated[now[i].Name] == end.ContainerID && end.ContainerID != "" || hasTerminated(before, now[i].Name) {
			continue
		}
		if r.terminated == nil {
			r.terminated = map[string]string{}
		}
		r.terminated[now[i].Name] = end.ContainerID
		r.m.ContainerTerminated(t, end.ExitCode, end.Reason)
	}
}

// hasTerminated reports whether statuses show a container as terminated.
func hasTerminated(all []corev1.ContainerStatus, name string) bool {
	for i := range all {
		if all[i].Name == name {
			return all[i].State.Terminated != nil
		}
	}
	return false
}

// TypeOf returns the type of a container of a Pod.
func TypeOf(p *corev1.Pod, name string) ContainerType {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return InitContainer
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == name {
			return EphemeralContainer
		}
	}
	return Container
}

// initTime returns how long the init containers of a Pod have run, without sidecars. f may be nil.
func initTime(p *corev1.Pod, f *fact.Pod) (sum time.Duration) {
	if f == nil {
		return 0
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			continue
		}
		if run, found := f.Of(c.Name); found && run.State == fact.Exited && !run.Started.IsZero() {
			sum += run.Finished.Sub(run.Started)
		}
	}
	return sum
}
