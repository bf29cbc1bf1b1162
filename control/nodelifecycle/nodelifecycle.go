// Package nodelifecycle monitors the health of nodes. It sets the conditions of a node without heartbeats to Unknown, turns
// conditions into NoSchedule taints, and gives nodes that are not ready a NoExecute taint that evicts their Pods: more slowly
// when many nodes of a zone are down, and not at all when all nodes are.
package nodelifecycle

import (
	"context"
	"iter"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Config has the grace periods. The zero value stands for upstream's.
type Config struct {
	// Grace is how long a node may be without a heartbeat, StartupGrace a new one without the condition Ready.
	Grace, StartupGrace time.Duration
}

// Controller returns the controller.
func Controller(c Config) control.Controller {
	if c.Grace == 0 {
		c.Grace = 50 * time.Second
	}
	if c.StartupGrace == 0 {
		c.StartupGrace = 60 * time.Second
	}
	t := newMonitor(c)
	return control.Controller{
		Name: "node-controller", For: gr.Nodes, Workers: 4,
		Triggers: []control.Trigger{
			// A renewed Lease is only recorded, and wakes no key: a node is reconciled when its heartbeat is overdue.
			{On: gr.Leases, Keys: t.observeLease},
			// When a node becomes ready or not ready, eviction from others may start or stop.
			{On: gr.Nodes, Keys: nodesWithEvictionTaint, When: func(old, now kind.Object) bool { return readiness(old) != readiness(now) }},
		},
		Reads:  []schema.GroupResource{gr.Pods},
		Writes: []control.Write{{On: gr.Nodes, Do: "update update/status"}, {On: gr.Pods, Do: "update/status"}, {On: gr.Leases, Do: "get"}},
		Reconcile: func(ctx context.Context, cl *control.Cluster, k control.Key) (time.Duration, error) {
			return t.reconcile(ctx, cl, k)
		},
	}
}

// readiness returns the status of a node's Ready condition.
func readiness(o kind.Object) corev1.ConditionStatus {
	n, ok := o.(*corev1.Node)
	if !ok || n == nil {
		return ""
	}
	if c := condition(&n.Status, corev1.NodeReady); c != nil {
		return c.Status
	}
	return ""
}

func condition(st *corev1.NodeStatus, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == t {
			return &st.Conditions[i]
		}
	}
	return nil
}

// byEvictionTaint indexes the nodes with an eviction taint, all under one value.
func byEvictionTaint() client.Index {
	return client.Index{Name: "driven", Values: func(o kind.Object) []string {
		if n, ok := o.(*corev1.Node); ok && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return isEvictionTaint(&t) }) {
			return []string{"yes"}
		}
		return nil
	}}
}

func nodesWithEvictionTaint(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for n := range c.View(gr.Nodes).By(byEvictionTaint(), "yes") {
			if !yield(control.KeyOf(n)) {
				return
			}
		}
	}
}

func (t *monitor) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	node, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
	if !found {
		if old := t.forget(k.Name); old != nil {
			c.Event(old, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", k.Name, k.Name)
		}
		return 0, nil
	}
	if t.isNew(node) {
		c.Event(node, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", node.Name, node.Name)
	}
	lease, _ := control.Get[*coordinationv1.Lease](c, gr.Leases, corev1.NamespaceNodeLease, node.Name)
	now := time.Now()
	left := t.graceLeft(node, lease, now)
	if left <= 0 {
		alive, err := t.hasRenewed(ctx, c, node, lease)
		if alive || err != nil {
			return time.Second, err
		}
		if next := node.DeepCopy(); setUnknown(&next.Status, node, now) {
			_, err := c.Update(ctx, gr.Nodes, next, "status")
			return 0, control.IgnoreNotFound(err)
		}
		left = 0
	}
	// With the status False, the kubelet itself has reported that the node is not ready, and reports its Pods too.
	if readiness(node) == corev1.ConditionUnknown {
		if err := setPodsNotReady(ctx, c, node, now); err != nil {
			return 0, err
		}
	}
	taints, wait := t.wantedTaints(c, node, now)
	next := node.DeepCopy()
	if relabelled := setDeprecatedLabels(next); relabelled || !apiequality.Semantic.DeepEqual(taints, node.Spec.Taints) {
		next.Spec.Taints = taints
		if _, err := c.Update(ctx, gr.Nodes, next, ""); err != nil {
			return 0, control.IgnoreNotFound(err)
		}
	}
	return sooner(left, wait), nil
}

// sooner returns the smaller of two delays; zero stands for none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// hasRenewed asks the server whether the Lease was renewed since the view's state, which may lag behind.
func (t *monitor) hasRenewed(ctx context.Context, c *control.Cluster, node *corev1.Node, seen *coordinationv1.Lease) (alive bool,
	err error) {
	o, err := c.Get(ctx, gr.Leases, corev1.NamespaceNodeLease, node.Name, "")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return seen == nil || o.GetResourceVersion() != seen.ResourceVersion, nil
}

// setPodsNotReady sets the Pods of an unreachable node to not ready.
func setPodsNotReady(ctx context.Context, c *control.Cluster, node *corev1.Node, now time.Time) error {
	for pod := range control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), node.Name) {
		next := pod.DeepCopy()
		if !setNotReady(&next.Status, now) {
			continue
		}
		if _, err := c.Update(ctx, gr.Pods, next, "status"); control.IgnoreNotFound(err) != nil {
			return err
		}
		c.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return nil
}
