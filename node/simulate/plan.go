package simulate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/duration"
)

// step is what comes next for a Pod.
type step struct {
	status *corev1.PodStatus // nil: unchanged
	gone   bool              // the Pod has ended and may be removed
	again  time.Duration     // when to reconcile again; 0 if something else has to happen first
	events []event
}

type event struct{ kind, reason, message string }

// plan computes what a node would report about a Pod now. It is a pure function of the Pod.
func plan(p *corev1.Pod, b Behaviour, now time.Time) step {
	if p.DeletionTimestamp != nil {
		return ending(p, b, now)
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return step{}
	}
	bound := boundAt(p)
	start := bound.Add(delay(p, StartAnnotation, b.Start))
	if now.Before(start) {
		return step{again: start.Sub(now)}
	}
	st := p.Status.DeepCopy()
	st.ObservedGeneration = p.Generation
	if st.StartTime == nil {
		st.StartTime = new(metav1.NewTime(now))
	}
	st.QOSClass = p.Status.QOSClass
	if d := p.Spec.ActiveDeadlineSeconds; d != nil {
		if end := st.StartTime.Add(duration.FromSeconds(*d)); !now.Before(end) {
			return deadlineExceeded(p, st, now)
		}
	}
	w := &containers{pod: p, behaviour: &b, now: now, had: &p.Status}
	w.run(st)
	phase(p, st)
	conditions(p, st, now, w.ready)
	s := step{status: st, again: w.again, events: w.events}
	if d := p.Spec.ActiveDeadlineSeconds; d != nil {
		s.wakeWithin(st.StartTime.Add(duration.FromSeconds(*d)).Sub(now))
	}
	return s
}

// wakeWithin makes the next reconcile come no later than in d.
func (s *step) wakeWithin(d time.Duration) {
	if d > 0 && (s.again == 0 || d < s.again) {
		s.again = d
	}
}

// boundAt returns when the scheduler bound the Pod.
func boundAt(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return p.CreationTimestamp.Time
}

// ending lets a Pod that is being deleted end within its grace period.
func ending(p *corev1.Pod, b Behaviour, now time.Time) step {
	var grace time.Duration
	if g := p.DeletionGracePeriodSeconds; g != nil {
		grace = duration.FromSeconds(*g)
	}
	asked := p.DeletionTimestamp.Add(-grace)
	stop := delay(p, StopAnnotation, b.Stop)
	for i := range p.Spec.Containers {
		if l := p.Spec.Containers[i].Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
			stop = max(stop, time.Duration(l.PreStop.Sleep.Seconds)*time.Second)
		}
	}
	end := asked.Add(min(grace, stop))
	if now.Before(end) {
		return step{again: end.Sub(now)}
	}
	return step{gone: true}
}

// deadlineExceeded fails a Pod that has exceeded its active deadline.
func deadlineExceeded(p *corev1.Pod, st *corev1.PodStatus, now time.Time) step {
	st.Phase, st.Reason, st.Message = corev1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			if c := &list[i]; c.State.Terminated == nil {
				terminate(c, 137, "Error", now)
			}
		}
	}
	conditions(p, st, now, false)
	return step{status: st, events: []event{{corev1.EventTypeNormal, "DeadlineExceeded",
		"Pod was active on the node longer than the specified deadline"}}}
}

// phase computes the phase from the containers' states.
func phase(p *corev1.Pod, st *corev1.PodStatus) {
	for _, c := range st.InitContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 && p.Spec.RestartPolicy == corev1.RestartPolicyNever &&
			!restarts(p, c.Name) {
			st.Phase = corev1.PodFailed
			return
		}
	}
	waiting, running, failed, done := 0, 0, 0, 0
	for _, c := range st.ContainerStatuses {
		switch {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
			done++
		case c.State.Terminated != nil:
			failed++
		case c.LastTerminationState.Terminated != nil: // it will be restarted
			running++
		default:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		st.Phase = corev1.PodPending
	case running > 0:
		st.Phase = corev1.PodRunning
	case failed > 0:
		st.Phase = corev1.PodFailed
	case done > 0:
		st.Phase = corev1.PodSucceeded
	default:
		st.Phase = corev1.PodPending
	}
}

// conditions sets the conditions that a node maintains.
func conditions(p *corev1.Pod, st *corev1.PodStatus, now time.Time, ready bool) {
	over := st.Phase == corev1.PodSucceeded || st.Phase == corev1.PodFailed
	reason, message := "", ""
	switch {
	case st.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case st.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason, message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready(st))
	}
	set := func(t corev1.PodConditionType, is bool, reason, message string) {
		status := corev1.ConditionFalse
		if is {
			status, reason, message = corev1.ConditionTrue, "", ""
		}
		c := corev1.PodCondition{Type: t, Status: status, Reason: reason, Message: message, ObservedGeneration: p.Generation,
			LastTransitionTime: metav1.NewTime(now)}
		for i := range st.Conditions {
			if have := &st.Conditions[i]; have.Type == t {
				if have.Status == status {
					c.LastTransitionTime = have.LastTransitionTime
				}
				*have = c
				return
			}
		}
		st.Conditions = append(st.Conditions, c)
	}
	initialized := true
	for _, c := range st.InitContainerStatuses {
		if c.State.Terminated == nil && !restarts(p, c.Name) || c.State.Terminated != nil && c.State.Terminated.ExitCode != 0 {
			initialized = false
		}
	}
	set(corev1.PodReadyToStartContainers, !over, "", "")
	initReason, initMessage := "ContainersNotInitialized", "containers with incomplete status"
	if over && st.Phase == corev1.PodSucceeded {
		set(corev1.PodInitialized, true, "", "")
	} else {
		set(corev1.PodInitialized, initialized, initReason, initMessage)
	}
	all := ready && !over
	set(corev1.ContainersReady, all, reason, message)
	gate := all
	for _, g := range p.Spec.ReadinessGates {
		if !isTrue(st, g.ConditionType) {
			gate = false
			if all {
				reason, message = "ReadinessGatesNotReady", fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
					string(g.ConditionType))
			}
		}
	}
	set(corev1.PodReady, gate, reason, message)
}

func isTrue(st *corev1.PodStatus, t corev1.PodConditionType) bool {
	for _, c := range st.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func unready(st *corev1.PodStatus) string {
	var names []string
	for _, c := range st.ContainerStatuses {
		if !c.Ready {
			names = append(names, c.Name)
		}
	}
	return fmt.Sprint(names)
}
