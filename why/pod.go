package why

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/lookup"
)

// pod explains a Pod.
func (r *reader) pod(ctx context.Context, t Target) (*Answer, error) {
	p, err := lookup.Load[corev1.Pod](ctx, r.Reader, gr.Pods, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	return r.explainPod(ctx, p), nil
}

// explainPod explains a Pod, once for each question: a Deployment and a Service may both lead to it.
func (r *reader) explainPod(ctx context.Context, p *corev1.Pod) *Answer {
	if a := r.pods[p.UID]; a != nil && p.UID != "" {
		return a
	}
	a := r.followPod(ctx, p)
	r.pods[p.UID] = a
	return a
}

// followPod follows the way of a Pod and stops at the first thing that is not as it should be.
func (r *reader) followPod(ctx context.Context, p *corev1.Pod) *Answer {
	a := &Answer{Object: podRef(p), State: Stuck}
	switch {
	case p.DeletionTimestamp != nil:
		return r.podEnding(ctx, p, a)
	case p.Status.Phase == corev1.PodSucceeded:
		a.State, a.Cause = Working, "The Pod has finished: all of its containers have succeeded."
		return a.because(a.Object, "status.phase", string(p.Status.Phase), time.Time{})
	case p.Spec.NodeName == "":
		return r.podUnscheduled(ctx, p, a)
	case p.Status.Phase == corev1.PodFailed:
		return r.podFailed(p, a)
	}
	if broken := r.podNode(ctx, p, a); broken != nil {
		return broken
	}
	events := r.Events(ctx, p.Namespace, p.UID)
	if waiting := r.podContainers(ctx, p, a, events); waiting != nil {
		return waiting
	}
	return r.podReady(p, a, events)
}

// podEnding explains a Pod that is being deleted.
func (r *reader) podEnding(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	a.at(hop.Node).because(a.Object, "metadata.deletionTimestamp", p.DeletionTimestamp.UTC().Format(time.RFC3339), p.DeletionTimestamp.Time)
	// The deletionTimestamp of a Pod is when its grace period ends.
	left := p.DeletionTimestamp.Sub(r.Now)
	running := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
	switch {
	case p.Spec.NodeName != "" && left > 0 && running:
		a.State = Waiting
		a.Cause = "The Pod is being deleted, and its containers have " + r.ago(r.Now.Add(-left)) +
			" of their grace period left to end by themselves."
		return a.do("kubectl delete pod %s%s --now ends the wait", p.Name, inNamespace(p.Namespace))
	case len(p.Finalizers) > 0 && !running:
		a.at(hop.Control)
		a.Cause = "The Pod is deleted, but the finalizers " + strings.Join(p.Finalizers, ", ") +
			" keep it; whoever added them has to remove them."
		return a.because(a.Object, "metadata.finalizers", strings.Join(p.Finalizers, ", "), time.Time{}).
			do("find out why the owner of the finalizer does not remove it: the controller may be gone or failing")
	}
	if p.Spec.NodeName != "" {
		node, missing := lookup.Get[corev1.Node](ctx, r.Reader, gr.Nodes, "", p.Spec.NodeName)
		if missing {
			a.Cause = "The Pod is being deleted on node " + p.Spec.NodeName +
				", which no longer exists; the garbage collector of Pods removes it."
			a.State = Waiting
			return a
		}
		if node != nil {
			if bad := r.nodeProblem(ctx, node); bad != nil {
				a.Cause = "The Pod is being deleted, but its node does not confirm that the containers have ended: " + lower(bad.Cause)
				a.Through = bad
				return a.do("repair or delete the node; kubectl delete pod %s%s --force removes only the object", p.Name, inNamespace(p.Namespace))
			}
		}
	}
	a.State = Waiting
	a.Cause = "The Pod is being deleted; its node is ending it."
	switch {
	case p.Spec.NodeName == "":
		a.Cause = "The Pod is being deleted; it has never been on a node."
	case left < -time.Minute:
		a.State = Unknown
		a.Cause = "The grace period of the Pod ended " + r.ago(p.DeletionTimestamp.Time) +
			" ago, and nothing says why its node has not ended it."
		a.do("proa logs %s, or the log of the kubelet on that node", p.Spec.NodeName)
	case left <= 0:
		a.Cause = "The Pod is being deleted; its node is ending it, " + r.ago(p.DeletionTimestamp.Time) + " after its grace period."
	}
	if e := lookup.Latest(r.Events(ctx, p.Namespace, p.UID), "FailedPreStopHook", "FailedKillPod", "FailedUnmount",
		"FailedUnMount"); e != nil {
		a.State = Stuck
		a.Cause = "The Pod cannot be ended: " + sentence(e.Message) + "."
		a.because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	return a
}

// podFailed explains a Pod that has ended in failure.
func (r *reader) podFailed(p *corev1.Pod, a *Answer) *Answer {
	a.at(hop.Node).because(a.Object, "status.phase", string(p.Status.Phase), time.Time{})
	if p.Status.Reason != "" {
		a.because(a.Object, "status.reason", p.Status.Reason, time.Time{})
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if end := c.State.Terminated; end != nil && end.ExitCode != 0 && p.Status.Reason == "" {
			a.Cause = "The Pod has failed: " + r.ended(c.Name, end) + ", and its restart policy is " + string(p.Spec.RestartPolicy) + "."
			return a.because(a.Object, "status.containerStatuses["+c.Name+"].state.terminated", terminated(end), end.FinishedAt.Time).
				do("kubectl logs %s%s -c %s", p.Name, inNamespace(p.Namespace), c.Name)
		}
	}
	a.Cause = "The Pod has failed"
	if p.Status.Reason != "" {
		a.Cause += " (" + p.Status.Reason + ")"
	}
	if p.Status.Message != "" {
		a.Cause += ": " + sentence(p.Status.Message)
	}
	a.Cause += "."
	switch {
	case p.Status.Reason == "Evicted":
		a.do("give the Pod requests that cover what it uses, or the node more of what ran short")
	case strings.HasPrefix(p.Status.Reason, "OutOf") || p.Status.Reason == "NodeAffinity" || p.Status.Reason == "UnexpectedAdmissionError":
		a.Cause = "The node refused the Pod (" + p.Status.Reason + "): " + sentence(p.Status.Message) + "."
		a.do("a controller makes another Pod; a bare Pod has to be created again")
	case p.Status.Reason == "DeadlineExceeded":
		a.do("raise spec.activeDeadlineSeconds, or make the work shorter")
	}
	return a
}

// podNode returns an answer when the node of a Pod is the problem, and nil when it is not.
func (r *reader) podNode(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	node, missing := lookup.Get[corev1.Node](ctx, r.Reader, gr.Nodes, "", p.Spec.NodeName)
	if missing {
		a.Cause = "The Pod is bound to node " + p.Spec.NodeName + ", which does not exist."
		return a.at(hop.Node).because(a.Object, "spec.nodeName", p.Spec.NodeName, time.Time{}).
			do("kubectl delete pod %s%s; a controller then makes another one", p.Name, inNamespace(p.Namespace))
	}
	if node == nil {
		return nil
	}
	bad := r.nodeProblem(ctx, node)
	if bad == nil || bad.State != Stuck {
		return nil
	}
	a.Cause = "The node of the Pod does not work: " + lower(bad.Cause)
	a.Through = bad
	return a.at(hop.Node).because(a.Object, "spec.nodeName", p.Spec.NodeName, time.Time{})
}

// podReady explains a Pod whose containers run.
func (r *reader) podReady(p *corev1.Pod, a *Answer, events []lookup.Event) *Answer {
	ready := podCondition(p, corev1.PodReady)
	if ready != nil && ready.Status == corev1.ConditionTrue {
		a.State, a.Cause = Working, "The Pod runs and is ready."
		a.because(a.Object, "status.conditions[Ready]", string(ready.Status), ready.LastTransitionTime.Time)
		for _, c := range p.Status.ContainerStatuses {
			if last := c.LastTerminationState.Terminated; last != nil && r.Now.Sub(last.FinishedAt.Time) < time.Hour {
				a.Cause = "The Pod runs and is ready, but " + r.ended(c.Name, last) + " " + r.ago(last.FinishedAt.Time) +
					" ago and was restarted."
				a.because(a.Object, "status.containerStatuses["+c.Name+"].lastState.terminated", terminated(last), last.FinishedAt.Time).
					do("kubectl logs %s%s -c %s --previous", p.Name, inNamespace(p.Namespace), c.Name)
			}
		}
		return a
	}
	for _, gate := range p.Spec.ReadinessGates {
		if c := podCondition(p, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			value := "not set"
			if c != nil {
				value = string(c.Status) + " " + c.Message
			}
			a.Cause = "The containers are ready, but the readiness gate " + string(gate.ConditionType) +
				" is not True; whoever added it has to set that condition."
			if containers := podCondition(p, corev1.ContainersReady); containers == nil || containers.Status == corev1.ConditionTrue {
				return a.at(hop.Control).because(a.Object, "status.conditions["+string(gate.ConditionType)+"]", value, time.Time{})
			}
		}
	}
	a.State, a.Cause = Unknown, "The Pod is not ready, and nothing that could be read says why."
	if ready != nil {
		a.because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason+" "+ready.Message,
			ready.LastTransitionTime.Time)
	}
	if p.Status.Phase == "" || p.Status.Phase == corev1.PodPending && len(p.Status.ContainerStatuses) == 0 {
		a.Cause = "The Pod is bound to node " + p.Spec.NodeName + ", whose agent has not reported anything about it yet."
		a.at(hop.Node)
		if bound := podCondition(p, corev1.PodScheduled); bound != nil && r.Now.Sub(bound.LastTransitionTime.Time) < 10*time.Second {
			a.State = Waiting
		}
		return a.do("proa logs %s, or the log of the kubelet on that node", p.Spec.NodeName)
	}
	if e := lookup.Latest(events, "Unhealthy", "Failed", "BackOff"); e != nil {
		a.State, a.Cause = Stuck, "The Pod is not ready: "+sentence(e.Message)+"."
		a.at(hop.Node).because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	return a
}

func podCondition(p *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == name {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// lower makes a sentence fit behind a colon. Names of kinds keep their capitals.
func lower(s string) string {
	for _, article := range []string{"The ", "A ", "An ", "It ", "Its ", "No ", "Nobody ", "Nothing ", "Not "} {
		if strings.HasPrefix(s, article) {
			return strings.ToLower(article) + strings.TrimPrefix(s, article)
		}
	}
	return s
}
