package job

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/workload"
	"proa.dev/kinds/period"
)

// After a failure the next Pod waits, longer with each that follows.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 10 * time.Minute
)

// backoff is what delays the next Pod of a Job: the failures since the last success, and when the last of them was.
type backoff struct {
	failures int
	last     time.Time
}

// after is the back-off when more Pods have finished.
func (b backoff) after(succeeded, failed []*corev1.Pod) backoff {
	var success time.Time
	for _, p := range succeeded {
		success = latest(success, finishedAt(p))
	}
	if len(succeeded) > 0 {
		b = backoff{}
	}
	for _, p := range failed {
		if at := finishedAt(p); len(succeeded) == 0 || at.After(success) {
			b.failures++
			b.last = latest(b.last, at)
		}
	}
	return b
}

// remaining is how long a new Pod must wait still.
func (b backoff) remaining(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	delay := firstDelay
	for range b.failures - 1 {
		if delay = min(2*delay, maxDelay); delay == maxDelay {
			break
		}
	}
	return max(0, delay-now.Sub(b.last))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// finishedAt is when a Pod ended, as well as one can tell: when its last container did; when it ceased to be ready; when
// it was deleted; when it was made.
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
			grace = period.Seconds(*s)
		}
		return p.DeletionTimestamp.Add(-grace)
	}
	return p.CreationTimestamp.Time
}

// containersFinished is when the last container ended, sidecars included; zero if one runs or there is none.
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
		at = latest(at, s.State.Terminated.FinishedAt.Time)
	}
	return at
}
