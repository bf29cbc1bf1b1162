package podstate

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/fact"
)

// StatusInput is what a status is computed from, beside the Pod and the facts.
type StatusInput struct {
	HostIPs []netip.Addr
	Runtime string // the name of the runtime, which is the scheme of container IDs
	// Waiting says, by container, why its next run has not begun.
	Waiting map[string]fact.Waiting
	Health  func(id string) Health
	Volumes bool
	// Ended reports that no container runs any more, and none will.
	Ended bool
	// Termination says why the Pod must not run here, or no longer; nil for a Pod that may run.
	Termination *Termination
	// Devices returns the health of a container's devices; it may be nil.
	Devices func(c *corev1.Container) []corev1.ResourceStatus
	// Resizing are the conditions about an in-place resize.
	Resizing []corev1.PodCondition
	Now      time.Time
}

// Termination is the node's decision that a Pod ends as failed: it was rejected, evicted, preempted, ran into its deadline,
// or the node is being stopped.
type Termination struct {
	Reason, Message string
	// DisruptionReason is the reason of the Pod's DisruptionTarget condition; empty if the Pod gets none, because the end was
	// its own fault.
	DisruptionReason string
	// DisruptionMessage is the message of that condition, if it differs from Message.
	DisruptionMessage string
	// Grace replaces the Pod's grace period, in seconds.
	Grace *int64
	// Rejected reports that the Pod was not admitted: nothing is known of its containers.
	Rejected bool
}

// ComputeStatus computes the status of a Pod. It is a pure function: the same facts give the same status, except for the
// transition times of conditions, which are kept while nothing changes.
func ComputeStatus(p *corev1.Pod, f *fact.Pod, s StatusInput) *corev1.PodStatus {
	old := &p.Status
	st := &corev1.PodStatus{
		ObservedGeneration: p.Generation, QOSClass: old.QOSClass, StartTime: old.StartTime, NominatedNodeName: old.NominatedNodeName,
		ResourceClaimStatuses: old.ResourceClaimStatuses, ExtendedResourceClaimStatus: old.ExtendedResourceClaimStatus,
	}
	if st.StartTime == nil {
		st.StartTime = new(apiTime(s.Now))
	}
	if v := s.Termination; v != nil && v.Rejected {
		st.Phase, st.Reason, st.Message, st.Conditions = corev1.PodFailed, v.Reason, v.Message, old.Conditions
		return st
	}
	st.InitContainerStatuses = containerStatuses(p, f, s, old.InitContainerStatuses, p.Spec.InitContainers)
	st.ContainerStatuses = containerStatuses(p, f, s, old.ContainerStatuses, p.Spec.Containers)
	if n := len(p.Spec.EphemeralContainers); n > 0 {
		specs := make([]corev1.Container, n)
		for i := range specs {
			specs[i] = corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
		st.EphemeralContainerStatuses = containerStatuses(p, f, s, old.EphemeralContainerStatuses, specs)
	}
	completeInit(p, f, s, st)
	setProbeResults(p, s, st)
	if s.Ended {
		concludeContainers(p, st)
	}
	st.Phase = phase(p, st, s.Ended, hasBegun(p, f))
	settlePhase(p, s, st)
	setAddresses(p, f, s, st)
	st.Conditions = conditions(p, f, s, st)
	if IsTerminal(st.Phase) && !IsTerminal(old.Phase) && !s.Ended && HasActiveContainer(f) {
		// Whoever waits for the Pod to finish must not see that before the last container has ended.
		st.Phase, st.Reason, st.Message = cmp.Or(old.Phase, corev1.PodPending), old.Reason, old.Message
	}
	return st
}

// HasActiveContainer reports whether a container runs, or may run.
func HasActiveContainer(f *fact.Pod) bool {
	return slices.ContainsFunc(f.Containers, func(c fact.Container) bool { return c.State == fact.Running || c.State == fact.Unknown })
}

// settlePhase corrects the phase: a terminal phase is never left, and the reason for it is kept.
func settlePhase(p *corev1.Pod, s StatusInput, st *corev1.PodStatus) {
	old := &p.Status
	if s.Termination != nil && !IsTerminal(old.Phase) {
		st.Phase, st.Reason, st.Message = corev1.PodFailed, s.Termination.Reason, s.Termination.Message
		return
	}
	if s.Ended && !IsTerminal(st.Phase) && !fact.Static(p) {
		st.Phase = corev1.PodFailed
	}
	if IsTerminal(old.Phase) {
		st.Phase = old.Phase
	}
	if st.Phase == old.Phase {
		st.Reason, st.Message = old.Reason, old.Message
	}
}

// containerStatuses computes the statuses of the containers of one kind, in the order of the spec.
func containerStatuses(p *corev1.Pod, f *fact.Pod, s StatusInput, old []corev1.ContainerStatus,
	specs []corev1.Container) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(specs))
	for i := range specs {
		c := &specs[i]
		var before *corev1.ContainerStatus
		if at := slices.IndexFunc(old, func(x corev1.ContainerStatus) bool { return x.Name == c.Name }); at >= 0 {
			before = &old[at]
		}
		out = append(out, containerStatus(p, c, f, s, before))
	}
	return out
}

// containerStatus computes the status of a container.
func containerStatus(p *corev1.Pod, c *corev1.Container, f *fact.Pod, s StatusInput, old *corev1.ContainerStatus) corev1.ContainerStatus {
	run, found := f.Of(c.Name)
	if !found || run.State == fact.Created { // one that is created but not started does not count yet
		return statusWithoutRun(p, c, s, old)
	}
	st := statusOfRun(s, c, run, old)
	if last, found := f.Before(c.Name); found {
		st.LastTerminationState = stateOfRun(s, last, nil)
	} else if old != nil && old.ContainerID != "" && old.ContainerID != st.ContainerID && old.State.Terminated != nil {
		st.LastTerminationState = old.State // the runtime has removed that run
	} else if old != nil {
		st.LastTerminationState = old.LastTerminationState
	}
	showWaiting(p, c, f, s, &st)
	return st
}

// showWaiting shows a container that shall be restarted as waiting, if it is known what it waits for.
func showWaiting(p *corev1.Pod, c *corev1.Container, f *fact.Pod, s StatusInput, st *corev1.ContainerStatus) {
	why, known := s.Waiting[c.Name]
	run, found := f.Of(c.Name)
	if !known && found && run.State == fact.Exited && run.Interrupted {
		// Shown as terminated with exit code 0 it would have succeeded, and the API allows no change after that.
		why, known = interruptedWaiting(), true
	}
	if !known || s.Ended || s.Termination != nil || !shouldStart(p, c, f) {
		return
	}
	if found && run.Succeeded() && isInitOnly(p, c) {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// isInitOnly reports whether a container is an init container that runs to completion.
func isInitOnly(p *corev1.Pod, c *corev1.Container) bool {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == c.Name {
			return !IsSidecar(c)
		}
	}
	return false
}

// statusWithoutRun computes the status of a container of which the runtime has no run.
func statusWithoutRun(p *corev1.Pod, c *corev1.Container, s StatusInput, old *corev1.ContainerStatus) corev1.ContainerStatus {
	if old != nil && old.State.Terminated != nil {
		return *old.DeepCopy()
	}
	reason := "ContainerCreating"
	if len(p.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: mountStatuses(c, nil)}
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	if old != nil {
		st.RestartCount, st.LastTerminationState = old.RestartCount, old.LastTerminationState
		if old.State.Running != nil && st.LastTerminationState.Terminated == nil {
			st.LastTerminationState.Terminated = unobservedEnd("The container could not be located when the pod was deleted.  The container used to be Running")
			if p.DeletionTimestamp == nil {
				st.RestartCount++
			}
		}
	}
	if why, known := s.Waiting[c.Name]; known && p.DeletionTimestamp == nil && !s.Ended {
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}
	}
	return st
}

// unobservedEnd returns the terminated state of a container whose end was not observed.
func unobservedEnd(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", Message: message, ExitCode: 137}
}

// statusOfRun computes the status of a run.
func statusOfRun(s StatusInput, c *corev1.Container, run *fact.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{
		Name: c.Name, RestartCount: int32(run.Attempt), Image: run.Image, ImageID: run.ImageID, ContainerID: containerID(s, run),
		VolumeMounts: mountStatuses(c, run), State: stateOfRun(s, run, old), User: run.User,
		Resources: resources(c, run), AllocatedResources: c.Resources.Requests,
	}
	if old != nil {
		if old.ContainerID == st.ContainerID {
			st.VolumeMounts = old.VolumeMounts // they do not change
		}
		st.RestartCount = max(st.RestartCount, old.RestartCount)
	}
	if s.Devices != nil {
		st.AllocatedResourcesStatus = s.Devices(c)
	}
	// The API stores the field only if its feature is on, which shows in the spec.
	if run.StopSignal != "" && c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		st.StopSignal = new(corev1.Signal(run.StopSignal))
	}
	return st
}

func containerID(s StatusInput, run *fact.Container) string { return s.Runtime + "://" + run.ID }

// resources returns the resources that a running container has, and its allotment if it does not run.
func resources(c *corev1.Container, run *fact.Container) *corev1.ResourceRequirements {
	out := c.Resources.DeepCopy()
	if run.State != fact.Running || run.Resources == nil {
		return out
	}
	put := func(to, from corev1.ResourceList, name corev1.ResourceName, least int64) {
		asked, wanted := to[name]
		has, known := from[name]
		if !wanted || !known {
			return
		}
		// The kernel has a minimum; amounts below it are shown as the spec has them.
		if least == 0 || has.MilliValue() > least || asked.MilliValue() > least {
			to[name] = has
		}
	}
	put(out.Limits, run.Resources.Limits, corev1.ResourceCPU, 10)
	put(out.Requests, run.Resources.Requests, corev1.ResourceCPU, 2)
	put(out.Limits, run.Resources.Limits, corev1.ResourceMemory, 0)
	return out
}

// stateOfRun returns the state of a run as the API represents it.
func stateOfRun(s StatusInput, run *fact.Container, old *corev1.ContainerStatus) (out corev1.ContainerState) {
	switch {
	case run.State == fact.Running:
		out.Running = &corev1.ContainerStateRunning{StartedAt: apiTime(run.Started)}
	case run.State == fact.Exited:
		out.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: run.ExitCode, Reason: run.Reason, Message: run.Message,
			StartedAt: startedAt(run), FinishedAt: apiTime(run.Finished), ContainerID: containerID(s, run),
		}
	case run.State == fact.Unknown && old != nil && old.State.Running != nil:
		out.Terminated = unobservedEnd("The container could not be located when the pod was terminated")
	default:
		out.Waiting = &corev1.ContainerStateWaiting{}
	}
	return out
}

// startedAt returns when a run began. If it could not be started that is 1970, as with kubelets, because the field has
// no value for never.
func startedAt(run *fact.Container) metav1.Time {
	if run.Started.IsZero() {
		return metav1.Unix(0, 0)
	}
	return apiTime(run.Started)
}

// mountStatuses returns the volume mounts of a container, with what the runtime reports about them.
func mountStatuses(c *corev1.Container, run *fact.Container) (out []corev1.VolumeMountStatus) {
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		st := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if run != nil && slices.ContainsFunc(run.Mounts, func(x fact.Mount) bool { return x.Container == m.MountPath && x.Recursive }) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		if run != nil {
			for _, x := range run.Mounts {
				if x.Container == m.MountPath && x.ImageRef != "" {
					st.VolumeStatus = &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: x.ImageRef}}
				}
			}
		}
		out = append(out, st)
	}
	return out
}

// completeInit shows init containers that the runtime has removed as completed, once the regular containers run.
func completeInit(p *corev1.Pod, f *fact.Pod, s StatusInput, st *corev1.PodStatus) {
	if s.Ended || !hasBegun(p, f) {
		return
	}
	for i := range st.InitContainerStatuses {
		x := &st.InitContainerStatuses[i]
		if _, found := f.Of(x.Name); found || IsSidecar(&p.Spec.InitContainers[i]) || x.State.Waiting == nil {
			continue
		}
		x.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason:  "Completed",
			Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
		}}
	}
}

// setProbeResults fills in the results of the probes.
func setProbeResults(p *corev1.Pod, s StatusInput, st *corev1.PodStatus) {
	ask := func(x *corev1.ContainerStatus) {
		h := Health{}
		if x.State.Running != nil {
			_, id, _ := splitContainerID(x.ContainerID)
			h = s.Health(id)
		}
		x.Started, x.Ready = &h.Started, h.Started && h.Ready
	}
	for i := range st.ContainerStatuses {
		ask(&st.ContainerStatuses[i])
	}
	for i := range st.InitContainerStatuses {
		x := &st.InitContainerStatuses[i]
		ask(x)
		if !IsSidecar(&p.Spec.InitContainers[i]) {
			x.Ready = x.State.Terminated != nil && !exitInStatus(x.State.Terminated).failed()
		}
	}
}

// concludeContainers shows containers whose end was not observed as failed, in a Pod that has ended.
func concludeContainers(p *corev1.Pod, st *corev1.PodStatus) {
	unseen := func(x *corev1.ContainerStatus) {
		if x.State.Terminated == nil {
			x.State = corev1.ContainerState{Terminated: unobservedEnd("The container could not be located when the pod was terminated")}
		}
	}
	if wasInitialized(p, st) {
		for i := range st.ContainerStatuses {
			unseen(&st.ContainerStatuses[i])
		}
	}
	// The init containers after the last one that has begun were never started.
	last := -1
	for i := range st.InitContainerStatuses {
		if x := &st.InitContainerStatuses[i]; x.State.Terminated != nil || x.State.Running != nil ||
			x.LastTerminationState.Terminated != nil {
			last = i
		}
	}
	for i := range last + 1 {
		unseen(&st.InitContainerStatuses[i])
	}
}

// wasInitialized reports whether the regular containers could have been started.
func wasInitialized(p *corev1.Pod, st *corev1.PodStatus) bool {
	n := len(st.InitContainerStatuses)
	if n == 0 {
		return true
	}
	for i := range st.ContainerStatuses {
		if x := &st.ContainerStatuses[i]; x.LastTerminationState.Terminated != nil || x.State.Waiting == nil {
			return true
		}
	}
	x, c := &st.InitContainerStatuses[n-1], &p.Spec.InitContainers[n-1]
	if IsSidecar(c) {
		return x.State.Running != nil || x.State.Terminated != nil || x.LastTerminationState.Terminated != nil
	}
	return x.State.Terminated != nil && !exitInStatus(x.State.Terminated).failed()
}

// setAddresses fills in the addresses of the Pod and of its node.
func setAddresses(p *corev1.Pod, f *fact.Pod, s StatusInput, st *corev1.PodStatus) {
	for _, ip := range s.HostIPs {
		st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip.String()})
	}
	ips := f.IPs()
	switch {
	case p.Spec.HostNetwork:
		ips = s.HostIPs
		if len(p.Status.PodIPs) > 0 && len(ips) <= len(p.Status.PodIPs) {
			ips = nil
			st.PodIPs = p.Status.PodIPs // they do not change
		}
	case len(ips) == 0 && (s.Ended || p.DeletionTimestamp != nil || IsTerminal(st.Phase)):
		st.PodIPs = p.Status.PodIPs // logs of a finished Pod are looked up by its address
	}
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, corev1.PodIP{IP: ip.String()})
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
}
