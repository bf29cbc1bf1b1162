// Package nodelife watches over nodes: one that gives no sign of life is declared unreachable, conditions become taints that keep
// Pods away, and a node that is not ready gets the taint that drives its Pods off, the slower the more nodes of its
// zone are down, and not at all when all of them are.
package nodelife

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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Config is how patient the loop is. The zero value is what Kubernetes has.
type Config struct {
	// Grace is how long a node may give no sign, StartupGrace a new one that has never said it is ready.
	Grace, StartupGrace time.Duration
}

// Controller returns the loop.
func Controller(c Config) control.Controller {
	if c.Grace == 0 {
		c.Grace = 50 * time.Second
	}
	if c.StartupGrace == 0 {
		c.StartupGrace = 60 * time.Second
	}
	t := newTower(c)
	return control.Controller{
		Name: "node-controller", For: gr.Nodes, Workers: 4,
		Triggers: []control.Trigger{
			// Leases only tell that a node lives. Nobody has to be woken for that: a node is looked at when it is overdue.
			{On: gr.Leases, Keys: t.hear},
			// When a node goes or comes back, others may be driven off, or no longer.
			{On: gr.Nodes, Keys: driven, When: func(old, now kind.Object) bool { return readiness(old) != readiness(now) }},
		},
		Reads:  []schema.GroupResource{gr.Pods},
		Writes: []control.Write{{On: gr.Nodes, Do: "update update/status"}, {On: gr.Pods, Do: "update/status"}, {On: gr.Leases, Do: "get"}},
		Reconcile: func(ctx context.Context, cl *control.Cluster, k control.Key) (time.Duration, error) {
			return t.reconcile(ctx, cl, k)
		},
	}
}

// readiness is the status of a node's Ready condition.
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

// byDriven finds the nodes whose Pods are being driven off.
func byDriven() client.Index {
	return client.Index{Name: "driven", Of: func(o kind.Object) []string {
		if n, ok := o.(*corev1.Node); ok && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return drives(&t) }) {
			return []string{"yes"}
		}
		return nil
	}}
}

func driven(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for n := range c.View(gr.Nodes).By(byDriven(), "yes") {
			if !yield(control.KeyOf(n)) {
				return
			}
		}
	}
}

func (t *tower) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	node, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
	if !found {
		if old := t.forget(k.Name); old != nil {
			c.Event(old, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", k.Name, k.Name)
		}
		return 0, nil
	}
	if t.greet(node) {
		c.Event(node, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", node.Name, node.Name)
	}
	lease, _ := control.Get[*coordinationv1.Lease](c, gr.Leases, corev1.NamespaceNodeLease, node.Name)
	now := time.Now()
	left := t.left(node, lease, now)
	if left <= 0 {
		alive, err := t.recheck(ctx, c, node, lease)
		if alive || err != nil {
			return time.Second, err
		}
		if next := node.DeepCopy(); lost(&next.Status, node, now) {
			_, err := c.Update(ctx, gr.Nodes, next, "status")
			return 0, control.Gone(err)
		}
		left = 0
	}
	// A kubelet that says itself that the node is not ready speaks for its Pods, too.
	if readiness(node) == corev1.ConditionUnknown {
		if err := notReady(ctx, c, node, now); err != nil {
			return 0, err
		}
	}
	taints, wait := t.taints(c, node, now)
	next := node.DeepCopy()
	if named := oldNames(next); named || !apiequality.Semantic.DeepEqual(taints, node.Spec.Taints) {
		next.Spec.Taints = taints
		if _, err := c.Update(ctx, gr.Nodes, next, ""); err != nil {
			return 0, control.Gone(err)
		}
	}
	return sooner(left, wait), nil
}

// sooner is the smaller of two waits; zero is none.
func sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// recheck looks past the view before a node is given up: the view may be the one that lags.
func (t *tower) recheck(ctx context.Context, c *control.Cluster, node *corev1.Node, seen *coordinationv1.Lease) (alive bool, err error) {
	o, err := c.Get(ctx, gr.Leases, corev1.NamespaceNodeLease, node.Name, "")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return seen == nil || o.GetResourceVersion() != seen.ResourceVersion, nil
}

// notReady says of the Pods of a node that they are not ready, since nobody can tell.
func notReady(ctx context.Context, c *control.Cluster, node *corev1.Node, now time.Time) error {
	for pod := range control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), node.Name) {
		next := pod.DeepCopy()
		if !unready(&next.Status, now) {
			continue
		}
		if _, err := c.Update(ctx, gr.Pods, next, "status"); control.Gone(err) != nil {
			return err
		}
		c.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return nil
}
