package podstate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/fact"
)

// isNodeCondition reports whether the node decides a condition; other conditions belong to whoever wrote them.
func isNodeCondition(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReadyToStartContainers,
		corev1.AllContainersRestarting, corev1.PodResizePending, corev1.PodResizeInProgress:
		return true
	}
	return false
}

func trueCondition(t corev1.PodConditionType) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue}
}

func falseCondition(t corev1.PodConditionType, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// conditions computes the conditions of a Pod, and keeps those of other writers.
func conditions(p *corev1.Pod, f *fact.Pod, s StatusInput, st *corev1.PodStatus) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range p.Status.Conditions {
		if !isNodeCondition(c.Type) {
			out = append(out, c)
		}
	}
	if v := s.Termination; v != nil && v.DisruptionReason != "" {
		out = setCondition(out, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: v.DisruptionReason,
			Message: cmp.Or(v.DisruptionMessage, v.Message)})
	}
	if !s.Ended {
		out = append(out, s.Resizing...)
	}
	whole := containersReady(p, st)
	mine := []corev1.PodCondition{
		readyToStart(p, f, s), initializedCondition(p, st), readyCondition(p, whole, out), whole, trueCondition(corev1.PodScheduled),
	}
	out = append(out, mine...)
	for i := range out {
		c := &out[i]
		if isNodeCondition(c.Type) && c.ObservedGeneration == 0 || c.Type == corev1.DisruptionTarget && s.Termination != nil {
			c.ObservedGeneration = p.Generation
		}
		at := slices.IndexFunc(p.Status.Conditions, func(x corev1.PodCondition) bool { return x.Type == c.Type })
		switch {
		case at >= 0 && p.Status.Conditions[at].Status == c.Status:
			c.LastTransitionTime, c.LastProbeTime = p.Status.Conditions[at].LastTransitionTime, p.Status.Conditions[at].LastProbeTime
		case c.LastTransitionTime.IsZero() || at >= 0:
			c.LastTransitionTime = apiTime(s.Now)
		}
	}
	return out
}

func setCondition(list []corev1.PodCondition, c corev1.PodCondition) []corev1.PodCondition {
	for i := range list {
		if list[i].Type == c.Type {
			list[i] = c
			return list
		}
	}
	return append(list, c)
}

// readyToStart computes the PodReadyToStartContainers condition: volumes, sandbox and network are there.
func readyToStart(p *corev1.Pod, f *fact.Pod, s StatusInput) corev1.PodCondition {
	problem := sandboxProblem(p, f)
	if problem == "" && !s.Volumes && !hasBegun(p, f) {
		problem = "no pod sandbox exists" // a sandbox without volumes does not count
	}
	if problem != "" {
		return falseCondition(corev1.PodReadyToStartContainers, "PodSandboxNotReady", problem)
	}
	return trueCondition(corev1.PodReadyToStartContainers)
}

func initializedCondition(p *corev1.Pod, st *corev1.PodStatus) corev1.PodCondition {
	var unfinished []string
	for i := range st.InitContainerStatuses {
		x := &st.InitContainerStatuses[i]
		done := x.Ready
		if IsSidecar(&p.Spec.InitContainers[i]) {
			done = x.Started != nil && *x.Started
		}
		if !done {
			unfinished = append(unfinished, x.Name)
		}
	}
	c := trueCondition(corev1.PodInitialized)
	switch {
	case st.Phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case len(unfinished) > 0 && !regularHasRun(st):
		return falseCondition(corev1.PodInitialized, "ContainersNotInitialized",
			fmt.Sprintf("containers with incomplete status: %s", unfinished))
	}
	return c
}

// regularHasRun reports whether a regular container has run.
func regularHasRun(st *corev1.PodStatus) bool {
	for i := range st.ContainerStatuses {
		if x := &st.ContainerStatuses[i]; x.Started != nil && *x.Started || x.State.Terminated != nil ||
			x.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

func containersReady(p *corev1.Pod, st *corev1.PodStatus) corev1.PodCondition {
	switch st.Phase {
	case corev1.PodSucceeded:
		return falseCondition(corev1.ContainersReady, "PodCompleted", "")
	case corev1.PodFailed:
		return falseCondition(corev1.ContainersReady, "PodFailed", "")
	}
	var unready []string
	for i := range st.InitContainerStatuses {
		if x := &st.InitContainerStatuses[i]; IsSidecar(&p.Spec.InitContainers[i]) && !x.Ready {
			unready = append(unready, x.Name)
		}
	}
	for i := range st.ContainerStatuses {
		if x := &st.ContainerStatuses[i]; !x.Ready {
			unready = append(unready, x.Name)
		}
	}
	if len(unready) > 0 {
		return falseCondition(corev1.ContainersReady, "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready))
	}
	return trueCondition(corev1.ContainersReady)
}

// readyCondition computes the Ready condition, which decides whether the Pod gets traffic.
func readyCondition(p *corev1.Pod, whole corev1.PodCondition, others []corev1.PodCondition) corev1.PodCondition {
	if whole.Status != corev1.ConditionTrue {
		return falseCondition(corev1.PodReady, whole.Reason, whole.Message)
	}
	var missing []string
	for _, gate := range p.Spec.ReadinessGates {
		at := slices.IndexFunc(others, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case at < 0:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case others[at].Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType,
				others[at].Status))
		}
	}
	if len(missing) > 0 {
		return falseCondition(corev1.PodReady, "ReadinessGatesNotReady", strings.Join(missing, ", "))
	}
	return trueCondition(corev1.PodReady)
}

// apiTime truncates a time to seconds, as the API stores it. Otherwise a computed status would never equal the stored
// one.
func apiTime(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
