package node

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/admit"
	"proa.dev/node/cgroup"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

// enter decides about a Pod that is new here: nil takes it.
func (a *Agent) enter(ctx context.Context, p *corev1.Pod) *pod.Verdict {
	if p.Status.StartTime != nil || p.DeletionTimestamp != nil || over(p) {
		return nil // it was taken before, or is on its way out
	}
	place := a.place()
	no := admit.Early(p, place)
	if no == nil && !a.has(p) {
		// What Pods may have alone is given before the rest is counted; who is refused afterwards gives it back when it ends.
		if v := a.topology.Admit(ctx, p); v != nil {
			no = &admit.Rejection{Reason: v.Reason, Message: v.Message}
		}
	}
	var victims []*corev1.Pod
	if no == nil {
		victims, no = admit.Admit(p, a.others(p), a.withHeld(place))
	}
	for _, v := range victims {
		a.pods.End(v.UID, &pod.Verdict{Reason: admit.PreemptReason, Message: admit.PreemptMessage, Disrupted: "TerminationByKubelet", Because: admit.PreemptCondition})
	}
	if no == nil {
		return nil
	}
	podEvents{a.events}.Event(p, "", corev1.EventTypeWarning, no.Reason, "%s", no.Message)
	return &pod.Verdict{Reason: no.Reason, Message: "Pod was rejected: " + no.Message, Rejected: true}
}

// has says that an earlier agent has given a Pod what it may have alone. Of static Pods nobody else remembers that they were taken,
// and their plugins may not be back yet.
func (a *Agent) has(p *corev1.Pod) bool {
	return fact.Static(p) && !a.complete.Load() && grants{a}.Holds(p.UID)
}

// others are the Pods that use the node beside one.
func (a *Agent) others(p *corev1.Pod) (out []*corev1.Pod) {
	for _, x := range a.pods.Pods() {
		if x.Pod.UID != p.UID && !over(x.Pod) && !x.Ended && !x.Gone {
			out = append(out, x.Pod)
		}
	}
	return out
}

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// fits says whether the node has what a running Pod asks for now, and can give it while the Pod runs.
func (a *Agent) fits(p, has *corev1.Pod) pod.Fit {
	if why := a.never(p, has); why != "" {
		return pod.Fit{Reason: corev1.PodReasonInfeasible, Message: why}
	}
	if no := admit.Resize(p, a.others(p), a.place()); no != nil {
		return pod.Fit{Reason: no.Reason, Message: no.Message}
	}
	return pod.Fit{}
}

// never says why a Pod cannot have other resources while it runs: what was given to it alone cannot be changed, nor can swap.
func (a *Agent) never(p, has *corev1.Pod) string {
	guaranteed := cgroup.Class(p) == corev1.PodQOSGuaranteed
	switch {
	case a.limits.Swapping && changes(p, has, func(now, before *corev1.Container) bool {
		return differs(now, before, corev1.ResourceMemory) && !restartsFor(before, corev1.ResourceMemory) && (a.limits.Swaps(p, now) || a.limits.Swaps(has, before))
	}):
		return "In-place resize of containers with swap is not supported."
	case guaranteed && a.Align.CPUs == "static" && changes(p, has, func(now, before *corev1.Container) bool { return differs(now, before, corev1.ResourceCPU) }):
		return `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	case guaranteed && a.Align.Memory == "Static" && changes(p, has, func(now, before *corev1.Container) bool { return differs(now, before, corev1.ResourceMemory) }):
		return `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	}
	return ""
}

// changes says that something is true of a container of a Pod and the same one before.
func changes(p, has *corev1.Pod, is func(now, before *corev1.Container) bool) bool {
	for _, x := range [][2][]corev1.Container{{p.Spec.InitContainers, has.Spec.InitContainers}, {p.Spec.Containers, has.Spec.Containers}} {
		for i := range x[0] {
			if i < len(x[1]) && is(&x[0][i], &x[1][i]) {
				return true
			}
		}
	}
	return false
}

func differs(a, b *corev1.Container, name corev1.ResourceName) bool {
	return a.Resources.Requests.Name(name, "").Cmp(*b.Resources.Requests.Name(name, "")) != 0
}

func restartsFor(c *corev1.Container, name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(r corev1.ContainerResizePolicy) bool {
		return r.ResourceName == name && r.RestartPolicy == corev1.RestartContainer
	})
}

// place is the node as Pods are admitted to it.
func (a *Agent) place() admit.Node {
	return admit.Node{Node: a.node.Current(), Pressure: a.pressure(), Sysctls: a.sysctls, AppArmor: a.apparmor, Stopping: a.shutdown.Status() != nil}
}

// withHeld is the node with at least what plugins have given already: a plugin that is away for a moment is no reason to refuse a
// Pod that has its devices.
func (a *Agent) withHeld(n admit.Node) admit.Node {
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

// registered waits until the cluster knows what the node has: no Pod can be taken before.
func (a *Agent) registered(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(a.allocatable()) == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	// All Pods together may use what is allocatable, from now on.
	return a.groups.Start(a.allocatable())
}
