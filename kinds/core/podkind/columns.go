package podkind

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/kind"
)

func podColumns() []kind.Column[corev1.Pod] {
	status, spec := corev1.PodStatus{}.SwaggerDoc(), corev1.PodSpec{}.SwaggerDoc()
	text := func(value func(*corev1.Pod) string) func(*corev1.Pod) any {
		return func(p *corev1.Pod) any {
			if s := value(p); s != "" {
				return s
			}
			return "<none>"
		}
	}
	return []kind.Column[corev1.Pod]{
		kind.NameColumn[corev1.Pod](),
		{Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.",
			Value: func(p *corev1.Pod) any { s := summarize(p); return fmt.Sprintf("%d/%d", s.ready, s.containers) }},
		{Name: "Status", Description: "The aggregate status of the containers in this pod.",
			Value: func(p *corev1.Pod) any { return summarize(p).reason }},
		{Name: "Restarts", Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
			Value: func(p *corev1.Pod) any { return summarize(p).restartsText() }},
		kind.AgeColumn[corev1.Pod](),
		{Name: "IP", Wide: true, Description: status["podIP"], Value: text(podIP)},
		{Name: "Node", Wide: true, Description: spec["nodeName"], Value: text(func(p *corev1.Pod) string { return p.Spec.NodeName })},
		{Name: "Nominated Node", Wide: true, Description: status["nominatedNodeName"],
			Value: text(func(p *corev1.Pod) string { return p.Status.NominatedNodeName })},
		{Name: "Readiness Gates", Wide: true, Description: spec["readinessGates"], Value: text(readinessGates)},
	}
}

func podRowConditions(p *corev1.Pod) []metav1.TableRowCondition {
	message := ""
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		message = "The pod has completed successfully."
	case corev1.PodFailed:
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase),
		Message: message}}
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return ""
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if c := podCondition(&p.Status, gate.ConditionType); c != nil && c.Status == corev1.ConditionTrue {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

// summary is the state of a pod in one Table row.
type summary struct {
	reason            string
	ready, containers int
	restarts          int
	last              metav1.Time // when a container last terminated before a restart
}

// addRestarts adds the restarts of a container.
func (s *summary) addRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.last.Before(&t.FinishedAt) {
		s.last = t.FinishedAt
	}
}

func (s summary) restartsText() string {
	if s.restarts == 0 || s.last.IsZero() {
		return strconv.Itoa(s.restarts)
	}
	return fmt.Sprintf("%d (%s ago)", s.restarts, kind.Age(s.last))
}

func summarize(p *corev1.Pod) summary {
	s := summary{reason: string(p.Status.Phase), containers: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.reason = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; containerspec.IsSidecar(c) {
			sidecars[c.Name] = true
			s.containers++
		}
	}
	waiting, beside := s.addInitContainers(p, sidecars)
	initialized := podCondition(&p.Status, corev1.PodInitialized)
	if !waiting || initialized != nil && initialized.Status == corev1.ConditionTrue {
		s.restarts, s.last = beside.restarts, beside.last
		s.addContainers(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.reason = "Unknown"
	case !isTerminal(p):
		s.reason = "Terminating"
	}
	return s
}

// addInitContainers adds the init containers up to the first that has not succeeded, and reports whether there is one.
// beside counts the restarts of sidecars.
func (s *summary) addInitContainers(p *corev1.Pod, sidecars map[string]bool) (waiting bool, beside summary) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.addRestarts(c)
		if sidecars[c.Name] {
			beside.addRestarts(c)
		}
		ended := c.State.Terminated
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecars[c.Name] && ptr.Deref(c.Started, false):
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil && ended.Reason != "":
			s.reason = "Init:" + ended.Reason
		case ended != nil:
			s.reason = "Init:" + exitText(ended)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.reason = "Init:" + c.State.Waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true, beside
	}
	return false, beside
}

// addContainers adds the containers, from the last to the first.
func (s *summary) addContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.addRestarts(c)
		ended := c.State.Terminated
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case ended != nil:
			if s.reason = ended.Reason; s.reason == "" {
				s.reason = exitText(ended)
			}
			if ended.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case running && isReady(p):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func exitText(t *corev1.ContainerStateTerminated) string {
	if t.Signal != 0 {
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func isReady(p *corev1.Pod) bool {
	c := podCondition(&p.Status, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
