package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// IsTerminal reports whether a Pod has succeeded or failed.
func IsTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// IsActive reports whether a Pod is neither terminal nor being deleted.
func IsActive(p *corev1.Pod) bool { return !IsTerminal(p) && p.DeletionTimestamp == nil }

// IsTerminating reports whether a Pod is being deleted and is not terminal yet.
func IsTerminating(p *corev1.Pod) bool { return !IsTerminal(p) && p.DeletionTimestamp != nil }

// Condition returns a condition of a Pod, or nil if it has none of the type.
func Condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether a Pod has the condition Ready.
func IsReady(p *corev1.Pod) bool {
	c := Condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readySince returns when a Pod became ready; zero if it is not.
func readySince(p *corev1.Pod) time.Time {
	if c := Condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// IsAvailable reports whether a Pod has been ready for at least minReadySeconds.
func IsAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if !IsReady(p) {
		return false
	}
	since := readySince(p)
	return minReadySeconds == 0 || !since.IsZero() && !since.Add(seconds(minReadySeconds)).After(now)
}

// NextAvailable returns how long it takes until the next of the Pods becomes available if it stays ready; 0 if none will.
func NextAvailable(pods []*corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	var next time.Duration
	for _, p := range pods {
		since := readySince(p)
		if since.IsZero() || minReadySeconds <= 0 {
			continue
		}
		if wait := since.Add(seconds(minReadySeconds)).Sub(now); wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
