package pod

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/fact"
)

// Seen is what a status is worked out from, beside the Pod and the runtime's facts.
type Seen struct {
	HostIPs []netip.Addr
	Runtime string // the name of the runtime, the first part of container IDs
	// Waiting is why the next run of a container has not begun.
	Waiting map[string]fact.Waiting
	Health  func(id string) Health
	Volumes bool
	// Ended says that no container runs any more, and none will.
	Ended bool
	// Verdict is why the Pod must not run here, or no longer; nil for none.
	Verdict *Verdict
	// Devices is how those of a container are; nil where there are none.
	Devices func(c *corev1.Container) []corev1.ResourceStatus
	// Resizing are the conditions about a change of resources.
	Resizing []corev1.PodCondition
	Now      time.Time
}

// Verdict ends a Pod as failed.
type Verdict struct {
	Reason, Message string
	// Disrupted says, where it is not empty, that this was not the Pod's fault: the reason of its DisruptionTarget condition.
	Disrupted string
	// Because is what that condition says, if not Message.
	Because string
	// Grace replaces the Pod's own, in seconds.
	Grace *int64
	// Rejected says that the Pod has not run here and shall not: nothing is known of its containers.
	Rejected bool
}

// derive works out the status of a Pod. It is pure: the same facts give the same status, but for times of transitions,
// which are kept while nothing changes.
func derive(p *corev1.Pod, f *fact.Pod, s Seen) *corev1.PodStatus {
	old := &p.Status
	st := &corev1.PodStatus{
		ObservedGeneration: p.Generation, QOSClass: old.QOSClass, StartTime: old.StartTime, NominatedNodeName: old.NominatedNodeName,
		ResourceClaimStatuses: old.ResourceClaimStatuses, ExtendedResourceClaimStatus: old.ExtendedResourceClaimStatus,
	}
	if st.StartTime == nil {
		st.StartTime = new(second(s.Now))
	}
	if v := s.Verdict; v != nil && v.Rejected {
		st.Phase, st.Reason, st.Message, st.Conditions = corev1.PodFailed, v.Reason, v.Message, old.Conditions
		return st
	}
	hasInit := len(p.Spec.InitContainers) > 0
	st.InitContainerStatuses = each(p, f, s, old.InitContainerStatuses, p.Spec.InitContainers, hasInit)
	st.ContainerStatuses = each(p, f, s, old.ContainerStatuses, p.Spec.Containers, hasInit)
	if n := len(p.Spec.EphemeralContainers); n > 0 {
		specs := make([]corev1.Container, n)
		for i := range specs {
			specs[i] = corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
		st.EphemeralContainerStatuses = each(p, f, s, old.EphemeralContainerStatuses, specs, hasInit)
	}
	finishInit(p, f, s, st)
	healthy(p, s, st)
	if s.Ended {
		conclude(p, st)
	}
	st.Phase = phase(p, st, s.Ended, begun(p, f))
	settle(p, s, st)
	address(p, f, s, st)
	st.Conditions = conditions(p, f, s, st)
	if terminal(st.Phase) && !terminal(old.Phase) && !s.Ended && active(f) {
		// Who waits for the end must not see it before the last container has ended.
		st.Phase, st.Reason, st.Message = cmp.Or(old.Phase, corev1.PodPending), old.Reason, old.Message
	}
	return st
}

// active says that a container runs, or may.
func active(f *fact.Pod) bool {
	return slices.ContainsFunc(f.Containers, func(c fact.Container) bool { return c.State == fact.Running || c.State == fact.Unknown })
}

// settle applies what a phase must not do: leave the end, or forget why it came to it.
func settle(p *corev1.Pod, s Seen, st *corev1.PodStatus) {
	old := &p.Status
	if s.Verdict != nil && !terminal(old.Phase) {
		st.Phase, st.Reason, st.Message = corev1.PodFailed, s.Verdict.Reason, s.Verdict.Message
		return
	}
	if s.Ended && !terminal(st.Phase) && !fact.Static(p) {
		st.Phase = corev1.PodFailed
	}
	if terminal(old.Phase) {
		st.Phase = old.Phase
	}
	if st.Phase == old.Phase {
		st.Reason, st.Message = old.Reason, old.Message
	}
}

// each works out the statuses of containers of one kind, in the order of the spec for init containers and by name for others.
func each(p *corev1.Pod, f *fact.Pod, s Seen, old []corev1.ContainerStatus, specs []corev1.Container, hasInit bool) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, 0, len(specs))
	for i := range specs {
		c := &specs[i]
		var before *corev1.ContainerStatus
		if at := slices.IndexFunc(old, func(x corev1.ContainerStatus) bool { return x.Name == c.Name }); at >= 0 {
			before = &old[at]
		}
		out = append(out, one(p, c, f, s, before, hasInit))
	}
	return out
}

// one works out the status of a container.
func one(p *corev1.Pod, c *corev1.Container, f *fact.Pod, s Seen, old *corev1.ContainerStatus, hasInit bool) corev1.ContainerStatus {
	run, found := f.Of(c.Name)
	if !found || run.State == fact.Created { // one that is made but not started is not there yet
		return absent(p, c, s, old, hasInit)
	}
	st := describe(s, c, run, old)
	if last, found := f.Before(c.Name); found {
		st.LastTerminationState = state(s, last, nil)
	} else if old != nil && old.ContainerID != "" && old.ContainerID != st.ContainerID && old.State.Terminated != nil {
		st.LastTerminationState = old.State // the runtime has forgotten it
	} else if old != nil {
		st.LastTerminationState = old.LastTerminationState
	}
	wait(p, c, f, s, &st)
	return st
}

// wait shows a container that shall run again as waiting, if it is known why it does not yet.
func wait(p *corev1.Pod, c *corev1.Container, f *fact.Pod, s Seen, st *corev1.ContainerStatus) {
	why, known := s.Waiting[c.Name]
	run, found := f.Of(c.Name)
	if !known && found && run.State == fact.Exited && run.Interrupted {
		// Shown as terminated with code 0 it would have succeeded, and the API would let it do nothing else any more.
		why, known = interruptedWaiting(), true
	}
	if !known || s.Ended || s.Verdict != nil || !wanted(p, c, f) {
		return
	}
	if found && run.Succeeded() && initOnly(p, c) {
		return
	}
	if st.State.Terminated != nil {
		st.LastTerminationState = st.State
	}
	st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// initOnly says that a container is an init container that runs to its end.
func initOnly(p *corev1.Pod, c *corev1.Container) bool {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == c.Name {
			return !sidecar(c)
		}
	}
	return false
}

// absent is the status of a container that the runtime does not know.
func absent(p *corev1.Pod, c *corev1.Container, s Seen, old *corev1.ContainerStatus, hasInit bool) corev1.ContainerStatus {
	if old != nil && old.State.Terminated != nil {
		return *old.DeepCopy()
	}
	reason := "ContainerCreating"
	if hasInit {
		reason = "PodInitializing"
	}
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: mounts(c, nil)}
	st.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	if old != nil {
		st.RestartCount, st.LastTerminationState = old.RestartCount, old.LastTerminationState
		if old.State.Running != nil && st.LastTerminationState.Terminated == nil {
			st.LastTerminationState.Terminated = lost("The container could not be located when the pod was deleted.  The container used to be Running")
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

// lost is the end of a container that nobody saw.
func lost(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", Message: message, ExitCode: 137}
}

// describe is the status of a run.
func describe(s Seen, c *corev1.Container, run *fact.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{
		Name: c.Name, RestartCount: int32(run.Attempt), Image: run.Image, ImageID: run.ImageID, ContainerID: id(s, run),
		VolumeMounts: mounts(c, run), State: state(s, run, old), User: run.User,
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
	// The API keeps the field only where its feature is on, and only there it is answered.
	if run.StopSignal != "" && c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		st.StopSignal = new(corev1.Signal(run.StopSignal))
	}
	return st
}

func id(s Seen, run *fact.Container) string { return s.Runtime + "://" + run.ID }

// resources are those a container has, or, when it does not run, those it is allotted.
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
		// The kernel knows no less than this; what is below is shown as it was asked for.
		if least == 0 || has.MilliValue() > least || asked.MilliValue() > least {
			to[name] = has
		}
	}
	put(out.Limits, run.Resources.Limits, corev1.ResourceCPU, 10)
	put(out.Requests, run.Resources.Requests, corev1.ResourceCPU, 2)
	put(out.Limits, run.Resources.Limits, corev1.ResourceMemory, 0)
	return out
}

// state is what a run does, as the API says it.
func state(s Seen, run *fact.Container, old *corev1.ContainerStatus) (out corev1.ContainerState) {
	switch {
	case run.State == fact.Running:
		out.Running = &corev1.ContainerStateRunning{StartedAt: second(run.Started)}
	case run.State == fact.Exited:
		out.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: run.ExitCode, Reason: run.Reason, Message: run.Message,
			StartedAt: startedAt(run), FinishedAt: second(run.Finished), ContainerID: id(s, run),
		}
	case run.State == fact.Unknown && old != nil && old.State.Running != nil:
		out.Terminated = lost("The container could not be located when the pod was terminated")
	default:
		out.Waiting = &corev1.ContainerStateWaiting{}
	}
	return out
}

// startedAt is when a run began. One that could not be started says 1970, as kubelets do: the field has no way to say never.
func startedAt(run *fact.Container) metav1.Time {
	if run.Started.IsZero() {
		return metav1.Unix(0, 0)
	}
	return second(run.Started)
}

// mounts are the volume mounts of a container, with what the runtime made of them.
func mounts(c *corev1.Container, run *fact.Container) (out []corev1.VolumeMountStatus) {
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

// finishInit shows init containers that the runtime has forgotten, while the others run, as what they must have been.
func finishInit(p *corev1.Pod, f *fact.Pod, s Seen, st *corev1.PodStatus) {
	if s.Ended || !begun(p, f) {
		return
	}
	for i := range st.InitContainerStatuses {
		x := &st.InitContainerStatuses[i]
		if _, found := f.Of(x.Name); found || sidecar(&p.Spec.InitContainers[i]) || x.State.Waiting == nil {
			continue
		}
		x.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason:  "Completed",
			Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally",
		}}
	}
}

// healthy fills in what probes say.
func healthy(p *corev1.Pod, s Seen, st *corev1.PodStatus) {
	ask := func(x *corev1.ContainerStatus) {
		h := Health{}
		if x.State.Running != nil {
			_, id, _ := cutID(x.ContainerID)
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
		if !sidecar(&p.Spec.InitContainers[i]) {
			x.Ready = x.State.Terminated != nil && !exitIn(x.State.Terminated).failed()
		}
	}
}

// conclude shows containers of a Pod that has ended, and whose own end nobody saw, as failed.
func conclude(p *corev1.Pod, st *corev1.PodStatus) {
	unseen := func(x *corev1.ContainerStatus) {
		if x.State.Terminated == nil {
			x.State = corev1.ContainerState{Terminated: lost("The container could not be located when the pod was terminated")}
		}
	}
	if initializedOnce(p, st) {
		for i := range st.ContainerStatuses {
			unseen(&st.ContainerStatuses[i])
		}
	}
	// The init containers after the last one that has begun never had their turn.
	last := -1
	for i := range st.InitContainerStatuses {
		if x := &st.InitContainerStatuses[i]; x.State.Terminated != nil || x.State.Running != nil || x.LastTerminationState.Terminated != nil {
			last = i
		}
	}
	for i := range last + 1 {
		unseen(&st.InitContainerStatuses[i])
	}
}

// initializedOnce says that the regular containers had their turn.
func initializedOnce(p *corev1.Pod, st *corev1.PodStatus) bool {
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
	if sidecar(c) {
		return x.State.Running != nil || x.State.Terminated != nil || x.LastTerminationState.Terminated != nil
	}
	return x.State.Terminated != nil && !exitIn(x.State.Terminated).failed()
}

// address fills in where the Pod and its node are.
func address(p *corev1.Pod, f *fact.Pod, s Seen, st *corev1.PodStatus) {
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
	case len(ips) == 0 && (s.Ended || p.DeletionTimestamp != nil || terminal(st.Phase)):
		st.PodIPs = p.Status.PodIPs // who asks for the logs of yesterday wants to know
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
