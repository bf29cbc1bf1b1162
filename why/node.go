package why

import (
	"context"
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
		if bad.State == Waiting && nodePressure(n) != nil { // its Pods run, but somebody has to act for the node
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

// nodePressure returns the first condition that says that a node lacks something; nil if none does.
func nodePressure(n *corev1.Node) *corev1.NodeCondition {
	for _, name := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
		corev1.NodeNetworkUnavailable} {
		if c := nodeCondition(n, name); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
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
		since := ""
		if !ready.LastHeartbeatTime.IsZero() {
			since = " since " + ready.LastHeartbeatTime.UTC().Format(time.RFC3339)
		}
		a.Cause = "The node " + n.Name + " has not been heard of" + since +
			": its agent has stopped, or the machine or the network is down."
		a.Because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason+": "+ready.Message,
			ready.LastTransitionTime.Time)
		if lease, _ := lookup.Get[coordinationv1.Lease](ctx, r.Reader, gr.Leases, corev1.NamespaceNodeLease, n.Name); lease != nil &&
			lease.Spec.RenewTime != nil {
			a.Because(Ref{Kind: "Lease", Namespace: corev1.NamespaceNodeLease, Name: n.Name}, "spec.renewTime",
				lease.Spec.RenewTime.UTC().Format(time.RFC3339), lease.Spec.RenewTime.Time)
		}
		return a.Do("start the agent again, or kubectl delete node %s when the machine is gone for good", n.Name)
	case ready.Status == corev1.ConditionFalse:
		a.Cause = "The node " + n.Name + " says that it is not ready: " + answer.Sentence(ready.Message) + "."
		return a.Because(a.Object, "status.conditions[Ready]", string(ready.Status)+" "+ready.Reason+": "+ready.Message,
			ready.LastTransitionTime.Time).
			Do("proa logs %s", n.Name)
	}
	a.State = Waiting
	if c := nodePressure(n); c != nil {
		a.Cause = "The node " + n.Name + " runs short of something and takes no further Pods: " + string(c.Type) + " (" +
			answer.Sentence(c.Message) + ")."
		return a.Because(a.Object, "status.conditions["+string(c.Type)+"]", string(c.Status)+" "+c.Reason, c.LastTransitionTime.Time).
			Do("free what is short on the machine; the node evicts Pods by itself if that does not help")
	}
	if n.Spec.Unschedulable {
		a.Cause = "The node " + n.Name + " is cordoned: it runs its Pods, and takes no new ones."
		return a.Because(a.Object, "spec.unschedulable", "true", time.Time{}).Do("kubectl uncordon %s", n.Name)
	}
	return nil
}
