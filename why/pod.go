package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/containers"
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
		return a.Because(a.Object, "status.phase", string(p.Status.Phase), time.Time{})
	case p.Spec.NodeName == "":
		return r.podUnscheduled(ctx, p, a)
	case p.Status.Phase == corev1.PodFailed:
		return r.podFailed(ctx, p, a)
	}
	if broken := r.podNode(ctx, p, a); broken != nil {
		return broken
	}
	events := r.Events(ctx, p.Namespace, p.UID)
	if waiting := r.containers().Explain(ctx, p, a, events); waiting != nil {
		return waiting
	}
	return r.podReady(p, a, events)
}

// containers returns what explains the containers of Pods.
func (r *reader) containers() *containers.Explainer {
	return &containers.Explainer{Reader: r.Reader, Now: r.Now}
}

// podEnding explains a Pod that is being deleted.
func (r *reader) podEnding(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	a.At(hop.Node).Because(a.Object, "metadata.deletionTimestamp", p.DeletionTimestamp.UTC().Format(time.RFC3339), p.DeletionTimestamp.Time)
	// The deletionTimestamp of a Pod is when its grace period ends.
	left := p.DeletionTimestamp.Sub(r.Now)
	running := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
	switch {
	case p.Spec.NodeName != "" && left > 0 && running:
		a.State = Waiting
		a.Cause = "The Pod is being deleted, and its containers have " + r.ago(r.Now.Add(-left)) +
			" of their grace period left to end by themselves."
		if grace := p.DeletionGracePeriodSeconds; grace != nil {
			a.Because(a.Object, "metadata.deletionGracePeriodSeconds", fmt.Sprint(*grace), time.Time{})
		}
		a.Do("a program that ends when it gets SIGTERM is not waited for")
		return a.Do("kubectl delete pod %s%s --now ends the wait", p.Name, answer.InNamespace(p.Namespace))
	case len(p.Finalizers) > 0 && !running:
		a.At(hop.Control)
		a.Cause = "The Pod is deleted, but the finalizers " + strings.Join(p.Finalizers, ", ") +
			" keep it; whoever added them has to remove them."
		return a.Because(a.Object, "metadata.finalizers", strings.Join(p.Finalizers, ", "), time.Time{}).
			Do("find out why the owner of the finalizer does not remove it: the controller may be gone or failing")
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
				a.Cause = "The Pod is being deleted, but its node does not confirm that the containers have ended: " + answer.Lower(bad.Cause)
				a.Through = bad
				return a.Do("repair or delete the node; kubectl delete pod %s%s --force removes only the object", p.Name, answer.InNamespace(p.Namespace))
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
		a.Do("proa logs %s, or the log of the kubelet on that node", p.Spec.NodeName)
	case left <= 0:
		a.Cause = "The Pod is being deleted; its node is ending it, " + r.ago(p.DeletionTimestamp.Time) + " after its grace period."
	}
	if e := lookup.Latest(r.Events(ctx, p.Namespace, p.UID), "FailedPreStopHook", "FailedKillPod", "FailedUnmount",
		"FailedUnMount"); e != nil {
		a.State = Stuck
		a.Cause = "The Pod cannot be ended: " + answer.Sentence(e.Message) + "."
		a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	return a
}

// podFailed explains a Pod that has ended in failure.
func (r *reader) podFailed(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	a.At(hop.Node).Because(a.Object, "status.phase", string(p.Status.Phase), time.Time{})
	if p.Status.Reason != "" {
		a.Because(a.Object, "status.reason", p.Status.Reason, time.Time{})
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if end := c.State.Terminated; end != nil && end.ExitCode != 0 && p.Status.Reason == "" {
			a.Cause = "The Pod has failed: " + containers.Ended(c.Name, end) + ", and its restart policy is " +
				string(p.Spec.RestartPolicy) + "."
			return a.Because(a.Object, "status.containerStatuses["+c.Name+"].state.terminated", containers.Terminated(end),
				end.FinishedAt.Time).
				Do("kubectl logs %s%s -c %s", p.Name, answer.InNamespace(p.Namespace), c.Name)
		}
	}
	a.Cause = "The Pod has failed"
	if p.Status.Reason != "" {
		a.Cause += " (" + p.Status.Reason + ")"
	}
	if p.Status.Message != "" {
		a.Cause += ": " + answer.Sentence(p.Status.Message)
	}
	a.Cause += "."
	switch {
	case p.Status.Reason == "Evicted" && strings.Contains(p.Status.Message, "exceed"):
		a.Do("raise the limit that the message names, or make the Pod write less")
	case p.Status.Reason == "Evicted":
		a.Do("give the Pod requests that cover what it uses, or the node more of what ran short")
		if node, _ := lookup.Get[corev1.Node](ctx, r.Reader, gr.Nodes, "", p.Spec.NodeName); node != nil && isShort(node) {
			a.Through = r.nodeProblem(ctx, node)
			a.Through.State = Stuck
		}
	case strings.HasPrefix(p.Status.Reason, "OutOf") || p.Status.Reason == "NodeAffinity" || p.Status.Reason == "UnexpectedAdmissionError":
		a.Cause = "The node refused the Pod (" + p.Status.Reason + "): " + answer.Sentence(p.Status.Message) + "."
		a.Do("a controller makes another Pod; a bare Pod has to be created again")
	case p.Status.Reason == "DeadlineExceeded":
		a.Do("raise spec.activeDeadlineSeconds, or make the work shorter")
	}
	return a
}

// podNode returns an answer when the node of a Pod is the problem, and nil when it is not.
func (r *reader) podNode(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	node, missing := lookup.Get[corev1.Node](ctx, r.Reader, gr.Nodes, "", p.Spec.NodeName)
	if missing {
		a.Cause = "The Pod is bound to node " + p.Spec.NodeName + ", which does not exist."
		return a.At(hop.Node).Because(a.Object, "spec.nodeName", p.Spec.NodeName, time.Time{}).
			Do("kubectl delete pod %s%s; a controller then makes another one", p.Name, answer.InNamespace(p.Namespace))
	}
	if node == nil {
		return nil
	}
	bad := r.nodeProblem(ctx, node)
	if bad == nil || bad.State != Stuck {
		return nil
	}
	a.Cause = "The node of the Pod does not work: " + answer.Lower(bad.Cause)
	if ready := nodeCondition(node, corev1.NodeReady); ready != nil && strings.Contains(ready.Message, "network not ready") {
		containers.NoNetwork(a, ready.Message, node.Name)
	}
	a.Through = bad
	return a.At(hop.Node).Because(a.Object, "spec.nodeName", p.Spec.NodeName, time.Time{})
}

// podReady explains a Pod whose containers run.
func (r *reader) podReady(p *corev1.Pod, a *Answer, events []lookup.Event) *Answer {
	ready := lookup.PodCondition(p, corev1.PodReady)
	if ready != nil && ready.Status == corev1.ConditionTrue {
		a.State, a.Cause = Working, "The Pod runs and is ready."
		a.Because(a.Object, "status.conditions[Ready]", string(ready.Status), ready.LastTransitionTime.Time)
		for i := range p.Status.ContainerStatuses {
			r.containers().AddRestart(p, &p.Status.ContainerStatuses[i], a, events)
		}
		return a
	}
	for _, gate := range p.Spec.ReadinessGates {
		if c := lookup.PodCondition(p, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			value := "not set"
			if c != nil {
				value = string(c.Status) + " " + c.Message
			}
			a.Cause = "The containers are ready, but the readiness gate " + string(gate.ConditionType) +
				" is not True; whoever added it has to set that condition."
			if all := lookup.PodCondition(p, corev1.ContainersReady); all == nil || all.Status == corev1.ConditionTrue {
				return a.At(hop.Control).Because(a.Object, "status.conditions["+string(gate.ConditionType)+"]", value, time.Time{})
			}
		}
	}
	a.State, a.Cause = Unknown, "The Pod is not ready, and nothing that could be read says why."
	if ready != nil {
		a.Because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason+" "+ready.Message,
			ready.LastTransitionTime.Time)
	}
	if p.Status.Phase == "" || p.Status.Phase == corev1.PodPending && len(p.Status.ContainerStatuses) == 0 {
		a.Cause = "The Pod is bound to node " + p.Spec.NodeName + ", whose agent has not reported anything about it yet."
		a.At(hop.Node)
		if bound := lookup.PodCondition(p, corev1.PodScheduled); bound != nil && r.Now.Sub(bound.LastTransitionTime.Time) < 10*time.Second {
			a.State = Waiting
		}
		return a.Do("proa logs %s, or the log of the kubelet on that node", p.Spec.NodeName)
	}
	if e := lookup.Latest(events, "Unhealthy", "Failed", "BackOff"); e != nil {
		a.State, a.Cause = Stuck, "The Pod is not ready: "+answer.Sentence(e.Message)+"."
		a.At(hop.Node).Because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	return a
}
