package why

import (
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// podUnscheduled explains a Pod that has no node.
func (r *reader) podUnscheduled(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	a.At(hop.Schedule)
	c := lookup.PodCondition(p, corev1.PodScheduled)
	if len(p.Spec.SchedulingGates) > 0 {
		names := make([]string, 0, len(p.Spec.SchedulingGates))
		for _, g := range p.Spec.SchedulingGates {
			names = append(names, g.Name)
		}
		a.Cause = "The Pod is not scheduled before its scheduling gates are removed: " + strings.Join(names, ", ") + "."
		return a.Because(a.Object, "spec.schedulingGates", strings.Join(names, ", "), time.Time{}).
			Do("whoever added the gates has to remove them from spec.schedulingGates")
	}
	if c == nil || c.Status != corev1.ConditionFalse {
		return r.podUntried(ctx, p, a)
	}
	a.Because(a.Object, "status.conditions[PodScheduled]", string(c.Status)+" "+c.Reason+": "+c.Message, c.LastTransitionTime.Time)
	a.Cause = "No node can take the Pod: " + answer.Sentence(c.Message) + "."
	switch {
	case c.Reason != corev1.PodReasonUnschedulable && c.Reason != "":
		a.Cause = "The Pod is not scheduled (" + c.Reason + "): " + answer.Sentence(c.Message) + "."
	case c.Message == "":
		a.Cause = "No node can take the Pod; the scheduler does not say why."
	}
	if p.Status.NominatedNodeName != "" {
		a.State = Waiting
		a.Cause = "The Pod waits until Pods of lower priority have left node " + p.Status.NominatedNodeName + " for it."
		a.Because(a.Object, "status.nominatedNodeName", p.Status.NominatedNodeName, time.Time{})
	}
	low := strings.ToLower(c.Message)
	if strings.Contains(low, "persistentvolumeclaim") {
		r.podClaims(ctx, p, a)
	}
	for _, advice := range []struct{ words, text string }{
		{"insufficient", "lower the requests of the Pod, end other Pods, or add a node; kubectl describe nodes shows what is requested"},
		{"node affinity/selector", "label a node as the Pod asks for, or change nodeSelector and affinity of the Pod"},
		{"node selector", "label a node as the Pod asks for, or change nodeSelector and affinity of the Pod"},
		{"persistentvolume's node affinity", "the volume of the Pod is bound to certain nodes: make one of them take the Pod, or move the data"},
		{"volume node affinity conflict", "the volume of the Pod is bound to certain nodes: make one of them take the Pod, or move the data"},
		{"anti-affinity", "the podAntiAffinity of this Pod or of others keeps it away: add nodes, or make it preferred in place of required"},
		{"topology spread", "the topologySpreadConstraints of the Pod leave no node: add one where Pods are missing, or use ScheduleAnyway"},
		{"free ports", "another Pod has the hostPort on each node: use another port, or a Service in place of a hostPort"},
		{"unschedulable", "kubectl uncordon NODE makes a node take Pods again"},
		{"no nodes available", "add a node: proa up --nodes N, or proa agent on another machine"},
	} {
		if strings.Contains(low, advice.words) && !slices.Contains(a.Actions, advice.text) {
			a.Do("%s", advice.text)
		}
	}
	if strings.Contains(low, "untolerated taint") {
		r.addTaintAdvice(ctx, p, a)
	}
	if strings.Contains(low, "node affinity/selector") || strings.Contains(low, "node selector") {
		becauseOfSelection(a, p)
	}
	return a
}

// becauseOfSelection adds which nodes a Pod asks for.
func becauseOfSelection(a *Answer, p *corev1.Pod) {
	if len(p.Spec.NodeSelector) > 0 {
		a.Because(a.Object, "spec.nodeSelector", labels.Set(p.Spec.NodeSelector).String(), time.Time{})
	}
	affinity := p.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	var terms []string // one of them has to hold
	for _, t := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var parts []string
		for _, e := range slices.Concat(t.MatchExpressions, t.MatchFields) {
			text := e.Key + " " + string(e.Operator)
			if len(e.Values) > 0 {
				text += " [" + strings.Join(e.Values, ", ") + "]"
			}
			parts = append(parts, text)
		}
		terms = append(terms, strings.Join(parts, " and "))
	}
	a.Because(a.Object, "spec.affinity.nodeAffinity", strings.Join(terms, ", or "), time.Time{})
}

// podUntried explains a Pod about which the scheduler has not said anything.
func (r *reader) podUntried(ctx context.Context, p *corev1.Pod, a *Answer) *Answer {
	age := r.Now.Sub(p.CreationTimestamp.Time)
	a.Because(a.Object, "spec.nodeName", "", time.Time{}).Because(a.Object, "status.conditions[PodScheduled]", "not set", time.Time{})
	if name := p.Spec.SchedulerName; name != "" && name != corev1.DefaultSchedulerName {
		a.Cause = "The Pod waits for the scheduler " + name + ", which has not said anything about it."
		return a.Because(a.Object, "spec.schedulerName", name, time.Time{}).Do("start that scheduler, or let spec.schedulerName out")
	}
	lease, missing := lookup.Get[coordinationv1.Lease](ctx, r.Reader, gr.Leases, "kube-system", "kube-scheduler")
	switch {
	case lease != nil && lease.Spec.RenewTime != nil && lease.Spec.LeaseDurationSeconds != nil &&
		r.Now.Sub(lease.Spec.RenewTime.Time) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second:
		a.Cause = "The scheduler is not running: nobody has renewed its Lease for " + r.ago(lease.Spec.RenewTime.Time) + "."
		return a.Because(Ref{Kind: "Lease", Namespace: "kube-system", Name: "kube-scheduler"}, "spec.renewTime",
			lease.Spec.RenewTime.UTC().Format(time.RFC3339), lease.Spec.RenewTime.Time).Do("proa status tells how the server does")
	case age < 5*time.Second:
		a.State, a.Cause = Waiting, "The Pod was created "+r.ago(p.CreationTimestamp.Time)+" ago and is about to be scheduled."
		return a
	case missing:
		a.Because(Ref{Kind: "Lease", Namespace: "kube-system", Name: "kube-scheduler"}, "metadata", "does not exist", time.Time{})
	}
	a.State = Unknown
	a.Cause = "The scheduler has said nothing about the Pod in the " + r.ago(p.CreationTimestamp.Time) +
		" since it was created; it may not be running."
	return a.Do("proa status tells how the server does; proa logs has what the scheduler says")
}

// podClaims goes on to the claim that a Pod waits for.
func (r *reader) podClaims(ctx context.Context, p *corev1.Pod, a *Answer) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name
		default:
			continue
		}
		claim, missing := lookup.Get[corev1.PersistentVolumeClaim](ctx, r.Reader, gr.PersistentVolumeClaims, p.Namespace, name)
		if missing {
			a.Cause = "The Pod waits for the PersistentVolumeClaim " + name + ", which does not exist."
			a.Because(a.Object, "spec.volumes["+v.Name+"]", name, time.Time{}).Do("create the claim")
			return
		}
		if claim != nil && (claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil) {
			cause := r.explainClaim(ctx, claim)
			if cause.State == Waiting && claim.DeletionTimestamp == nil {
				continue // it waits for a Pod, perhaps this one
			}
			a.Through = cause
			a.Cause = "The Pod waits for the PersistentVolumeClaim " + name + ": " + answer.Lower(a.Through.Cause)
			return
		}
	}
}
