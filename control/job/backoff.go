package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/duration"
)

// The next Pod is delayed after a failure, and longer after each further one.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 10 * time.Minute
)

// backoff is the back-off of a Job's next Pod: the number of failures since the last success, and the time of the last one.
type backoff struct {
	failures int
	last     time.Time
}

// after returns the back-off after more Pods have finished.
func (b backoff) after(succeeded, failed []*corev1.Pod) backoff {
	var success time.Time
	for _, p := range succeeded {
		success = later(success, finishedAt(p))
	}
	if len(succeeded) > 0 {
		b = backoff{}
	}
	for _, p := range failed {
		if at := finishedAt(p); len(succeeded) == 0 || at.After(success) {
			b.failures++
			b.last = later(b.last, at)
		}
	}
	return b
}

// remaining returns how long a new Pod must still wait.
func (b backoff) remaining(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	return max(0, workload.BackoffDelay(firstDelay, maxDelay, b.failures)-now.Sub(b.last))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// finishedAt returns when a Pod finished: the end of its last container or, if that is not known, when it became unready, was
// deleted, or was created.
func finishedAt(p *corev1.Pod) time.Time {
	if at := containersFinished(p); !at.IsZero() {
		return at
	}
	if c := workload.Condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if p.DeletionTimestamp != nil {
		grace := time.Duration(0)
		if s := p.DeletionGracePeriodSeconds; s != nil {
			grace = duration.FromSeconds(*s)
		}
		return p.DeletionTimestamp.Add(-grace)
	}
	return p.CreationTimestamp.Time
}

// containersFinished returns when the last container ended, sidecars included; zero if one runs or there is none.
func containersFinished(p *corev1.Pod) time.Time {
	all := slices.Clone(p.Status.ContainerStatuses)
	for _, s := range p.Status.InitContainerStatuses {
		if slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == s.Name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}) {
			all = append(all, s)
		}
	}
	var at time.Time
	for _, s := range all {
		if s.State.Terminated == nil || s.State.Terminated.FinishedAt.IsZero() {
			return time.Time{}
		}
		at = later(at, s.State.Terminated.FinishedAt.Time)
	}
	return at
}
