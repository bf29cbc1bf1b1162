package podstate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// ReasonTerminated is the reason in the status of a Pod that ended because its node was stopped, and of a container
// that was stopped with it.
const ReasonTerminated = "Terminated"

// NodeShutdown returns the Termination on a Pod that ends because its node is being stopped. within is its grace period in
// seconds; nil for the Pod's own.
func NodeShutdown(within *int64) *Termination {
	return &Termination{
		Reason: ReasonTerminated, Message: "Pod was terminated in response to imminent node shutdown.",
		DisruptionReason: corev1.PodReasonTerminationByKubelet, Grace: within,
	}
}

// interruptedWaiting is the waiting state of a container that was stopped with its node and will be restarted.
func interruptedWaiting() fact.Waiting {
	return fact.Waiting{Reason: "NodeShutdown", Message: "The container was stopped because its node stops; it starts again with the node"}
}

// MarkInterrupted marks a run as interrupted. Its exit code stays what it was.
func MarkInterrupted(c *fact.Container) {
	c.Interrupted = true
	if c.Reason == "Completed" || c.Reason == "Error" {
		c.Reason = ReasonTerminated
	}
}

// EndedBeforeBoot reports whether a run ended in an earlier boot of the machine without its end having been reported,
// so that nobody knows whether it had done its work. For static Pods there is no status that would tell.
func EndedBeforeBoot(p *corev1.Pod, run *fact.Container, booted time.Time) bool {
	if booted.IsZero() || fact.Static(p) {
		return false
	}
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
		for _, end := range []*corev1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
			if end == nil {
				continue
			}
			if _, id, _ := splitContainerID(end.ContainerID); id == run.ID {
				return end.Reason == ReasonTerminated
			}
		}
	}
	return run.Finished.Before(booted)
}

// isPaused reports whether the regular containers were interrupted and none runs: they start from the beginning, after
// the sidecars.
func isPaused(p *corev1.Pod, f *fact.Pod) bool {
	some := false
	for i := range p.Spec.Containers {
		run, found := f.Of(p.Spec.Containers[i].Name)
		switch {
		case !found:
		case run.State == fact.Running:
			return false
		case run.State == fact.Exited && run.Interrupted:
			some = true
		}
	}
	return some
}

// CannotResume reports whether a container was interrupted that may not be restarted, so that its Pod has failed. While
// the Pod is being interrupted, running containers count too.
func CannotResume(p *corev1.Pod, f *fact.Pod, interrupting bool) bool {
	hasBegun := hasBegun(p, f)
	for c := range Containers(p) {
		run, found := f.Of(c.Name)
		if !found || hasBegun && isInitOnly(p, c) {
			continue
		}
		runs := interrupting && (run.State == fact.Running || run.State == fact.Unknown)
		if (runs || run.State == fact.Exited && run.Interrupted) && !shouldRestart(p, c, exit{run.ExitCode, true}) {
			return true
		}
	}
	return false
}
