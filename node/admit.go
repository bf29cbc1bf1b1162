package node

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/admission"
	"proa.dev/node/cgroup"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
	"proa.dev/node/podstate"
)

// admit decides whether a Pod that is new on the node is admitted: nil admits it.
func (a *Agent) admit(ctx context.Context, p *corev1.Pod) *podstate.Termination {
	if p.Status.StartTime != nil || p.DeletionTimestamp != nil || isTerminal(p) {
		return nil // it was admitted before, or is terminating
	}
	place := a.admissionNode()
	no := admission.AdmitBeforeAllocation(p, place)
	if no == nil && !a.hasDevicesFromBefore(p) {
		// Exclusive resources are allocated before the rest is counted; a Pod that is rejected afterwards releases them
		// when it ends.
		if v := a.topology.Admit(ctx, p); v != nil {
			no = &admission.Rejection{Reason: v.Reason, Message: v.Message}
		}
	}
	var victims []*corev1.Pod
	if no == nil {
		victims, no = admission.Admit(p, a.otherPods(p), a.withHeldDevices(place))
	}
	for _, v := range victims {
		a.pods.End(v.UID, &podstate.Termination{Reason: admission.PreemptReason, Message: admission.PreemptMessage,
			DisruptionReason: "TerminationByKubelet", DisruptionMessage: admission.PreemptCondition})
	}
	if no == nil {
		return nil
	}
	podEvents{a.events}.Event(event.Pod(p), corev1.EventTypeWarning, no.Reason, "%s", no.Message)
	return &podstate.Termination{Reason: no.Reason, Message: "Pod was rejected: " + no.Message, Rejected: true}
}

// hasDevicesFromBefore reports whether an earlier agent has allocated devices to a static Pod. That a static Pod was admitted is
// recorded nowhere else, and its device plugins may not have registered yet.
func (a *Agent) hasDevicesFromBefore(p *corev1.Pod) bool {
	return fact.Static(p) && !a.sourcesComplete.Load() && podDevices{a}.Holds(p.UID)
}

// otherPods returns the Pods that use resources of the node, without p.
func (a *Agent) otherPods(p *corev1.Pod) (out []*corev1.Pod) {
	for _, x := range a.pods.Pods() {
		if x.Pod.UID != p.UID && !isTerminal(x.Pod) && !x.Ended && !x.Removed {
			out = append(out, x.Pod)
		}
	}
	return out
}

func isTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// checkResize reports whether the node can give a running Pod the resources that its spec requests now.
func (a *Agent) checkResize(p, has *corev1.Pod) pod.Fit {
	if why := a.resizeInfeasible(p, has); why != "" {
		return pod.Fit{Reason: corev1.PodReasonInfeasible, Message: why}
	}
	if no := admission.Resize(p, a.otherPods(p), a.admissionNode()); no != nil {
		return pod.Fit{Reason: no.Reason, Message: no.Message}
	}
	return pod.Fit{}
}

// resizeInfeasible returns why a Pod can never be resized in place: exclusive CPUs and memory cannot be changed, nor can swap.
func (a *Agent) resizeInfeasible(p, has *corev1.Pod) string {
	guaranteed := cgroup.QOSClass(p) == corev1.PodQOSGuaranteed
	switch {
	case a.limits.AllowSwap && anyContainer(p, has, func(now, before *corev1.Container) bool {
		return requestsDiffer(now, before, corev1.ResourceMemory) && !restartsOnResize(before, corev1.ResourceMemory) &&
			(a.limits.MayUseSwap(p, now) || a.limits.MayUseSwap(has, before))
	}):
		return "In-place resize of containers with swap is not supported."
	case guaranteed && a.ResourceManagers.CPUs == "static" &&
		anyContainer(p, has, func(now, before *corev1.Container) bool { return requestsDiffer(now, before, corev1.ResourceCPU) }):
		return `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	case guaranteed && a.ResourceManagers.Memory == "Static" &&
		anyContainer(p, has, func(now, before *corev1.Container) bool { return requestsDiffer(now, before, corev1.ResourceMemory) }):
		return `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	}
	return ""
}

// anyContainer reports whether a predicate holds for a container and its earlier version.
func anyContainer(p, has *corev1.Pod, is func(now, before *corev1.Container) bool) bool {
	for _, x := range [][2][]corev1.Container{{p.Spec.InitContainers, has.Spec.InitContainers}, {p.Spec.Containers, has.Spec.Containers}} {
		for i := range x[0] {
			if i < len(x[1]) && is(&x[0][i], &x[1][i]) {
				return true
			}
		}
	}
	return false
}

func requestsDiffer(a, b *corev1.Container, name corev1.ResourceName) bool {
	return a.Resources.Requests.Name(name, "").Cmp(*b.Resources.Requests.Name(name, "")) != 0
}

func restartsOnResize(c *corev1.Container, name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(r corev1.ContainerResizePolicy) bool {
		return r.ResourceName == name && r.RestartPolicy == corev1.RestartContainer
	})
}

// admissionNode describes the node for the admission of Pods.
func (a *Agent) admissionNode() admission.Node {
	return admission.Node{Node: a.node.Current(), Pressure: a.pressures(), Sysctls: a.sysctls, AppArmor: a.apparmor,
		Stopping: a.shutdown.Status() != nil}
}

// withHeldDevices raises the allocatable resources of the node to what device plugins have allocated already: that a plugin is
// away for a moment is no reason to reject a Pod that has its devices.
func (a *Agent) withHeldDevices(n admission.Node) admission.Node {
	if n.Node == nil {
		return n
	}
	for name, held := range a.devices.Held() {
		if has := n.Node.Status.Allocatable[name]; has.Cmp(held) < 0 {
			n.Node = n.Node.DeepCopy()
			n.Node.Status.Allocatable[name] = held
		}
	}
	return n
}

// waitRegistered waits until the Node object says what is allocatable: no Pod can be admitted before.
func (a *Agent) waitRegistered(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(a.allocatable()) == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	// From now on all Pods together are limited to what is allocatable.
	return a.groups.Start(a.allocatable())
}
