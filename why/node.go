package why

import (
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// node explains a Node.
func (r *reader) node(ctx context.Context, t Target) (*Answer, error) {
	n, err := lookup.Load[corev1.Node](ctx, r.Reader, gr.Nodes, "", t.Name)
	if err != nil {
		return nil, err
	}
	if bad := r.nodeProblem(ctx, n); bad != nil {
		if bad.State == Waiting && isShort(n) { // its Pods run, but somebody has to act for the node
			bad.State = Stuck
		}
		return bad, nil
	}
	a := &Answer{Object: nodeRef(n), State: Working, Cause: "The node is ready and takes Pods."}
	if c := nodeCondition(n, corev1.NodeReady); c != nil {
		a.Because(a.Object, "status.conditions[Ready]", string(c.Status), c.LastTransitionTime.Time)
	}
	return a, nil
}

func nodeRef(n *corev1.Node) Ref { return Ref{Kind: "Node", Name: n.Name} }

func nodeCondition(n *corev1.Node, name corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == name {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// staleLease is how old the Lease of a node that is called ready may be. The controllers call a node unknown after 50 seconds.
const staleLease = 2 * time.Minute

// lastRenewal returns when a node last renewed its Lease; the zero time if there is none or it cannot be read. All Leases are read at once.
func (r *reader) lastRenewal(ctx context.Context, node string) time.Time {
	leases, err := lookup.TryList[coordinationv1.Lease](ctx, r.Reader, gr.Leases, corev1.NamespaceNodeLease, "")
	if err != nil {
		return time.Time{} // few users may read them
	}
	for i := range leases {
		if leases[i].Name == node && leases[i].Spec.RenewTime != nil {
			return leases[i].Spec.RenewTime.Time
		}
	}
	return time.Time{}
}

func becauseOfLease(a *Answer, node string, renewed time.Time) {
	lease := Ref{Kind: "Lease", Namespace: corev1.NamespaceNodeLease, Name: node}
	a.Because(lease, "spec.renewTime", renewed.UTC().Format(time.RFC3339), renewed)
}

// nodeProblem returns what keeps a node from running Pods well, and nil when nothing does. A node that only takes no further Pods is
// Waiting, not Stuck.
func (r *reader) nodeProblem(ctx context.Context, n *corev1.Node) *Answer {
	a := (&Answer{Object: nodeRef(n), State: Stuck}).At(hop.Node)
	ready := nodeCondition(n, corev1.NodeReady)
	switch {
	case n.DeletionTimestamp != nil:
		a.Cause = "The node is being deleted, and the finalizers " + strings.Join(n.Finalizers, ", ") + " keep it."
		return a.Because(a.Object, "metadata.finalizers", strings.Join(n.Finalizers, ", "), n.DeletionTimestamp.Time)
	case ready == nil:
		a.Cause = "The node " + n.Name + " has never reported its status; its agent may not have started."
		return a.Do("proa logs %s, or the log of the kubelet on that machine", n.Name)
	case ready.Status == corev1.ConditionUnknown:
		a.Because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason+": "+ready.Message,
			ready.LastTransitionTime.Time)
		last := ready.LastHeartbeatTime.Time // the status is written seldom, the Lease all the time
		if renewed := r.lastRenewal(ctx, n.Name); !renewed.IsZero() {
			last = slices.MaxFunc([]time.Time{last, renewed}, time.Time.Compare)
			becauseOfLease(a, n.Name, renewed)
		}
		since := ""
		if !last.IsZero() {
			since = " since " + last.UTC().Format(time.RFC3339)
		}
		a.Cause = "The node " + n.Name + " has not been heard of" + since +
			": its agent has stopped, or the machine or the network is down."
		return a.Do("start the agent again, or kubectl delete node %s when the machine is gone for good", n.Name)
	case ready.Status == corev1.ConditionFalse:
		a.Cause = "The node " + n.Name + " says that it is not ready: " + answer.Sentence(ready.Message) + "."
		return a.Because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason+": "+ready.Message,
			ready.LastTransitionTime.Time).
			Do("proa logs %s", n.Name)
	}
	if renewed := r.lastRenewal(ctx, n.Name); !renewed.IsZero() && r.Now.Sub(renewed) > staleLease {
		a.Cause = "The node " + n.Name + " was ready, but has not renewed its Lease for " + r.ago(renewed) +
			": its agent or the controllers of the server have stopped, or the clocks of the machines differ."
		a.Because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason, ready.LastTransitionTime.Time)
		becauseOfLease(a, n.Name, renewed)
		return a.Do("proa status tells how the server does, and proa logs %s what the agent says", n.Name)
	}
	a.State = Waiting
	if c, short := nodeShortage(n); c != nil {
		return addShortage(a, n, c, short)
	}
	if n.Spec.Unschedulable {
		a.Cause = "The node " + n.Name + " is cordoned: it runs its Pods, and takes no new ones."
		return a.Because(a.Object, "spec.unschedulable", "true", time.Time{}).Do("kubectl uncordon %s", n.Name)
	}
	return nil
}
