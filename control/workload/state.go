package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Terminal says that a Pod has ended for good.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Active says that a Pod counts: it has neither ended nor is it being deleted.
func Active(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp == nil }

// Terminating says that a Pod is being deleted and has not ended yet.
func Terminating(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp != nil }

// Condition finds a condition of a Pod, or nil.
func Condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// Ready says that a Pod has the condition Ready.
func Ready(p *corev1.Pod) bool {
	c := Condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// readySince is when a Pod became ready; zero if it is not.
func readySince(p *corev1.Pod) time.Time {
	if c := Condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// Available says that a Pod has been ready for long enough.
func Available(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if !Ready(p) {
		return false
	}
	since := readySince(p)
	return minReadySeconds == 0 || !since.IsZero() && !since.Add(seconds(minReadySeconds)).After(now)
}

// NextAvailable is how long it takes until the next of the Pods becomes available if it stays ready; 0 if none will.
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
