package cloud

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

const (
	// off is the taint of nodes whose machine is switched off.
	off = "node.cloudprovider.kubernetes.io/shutdown"
	// askAfter is how often the cloud is asked about a node that is not ready.
	askAfter = 5 * time.Second
)

// lives deletes Nodes whose machine is gone, and taints those whose machine is switched off. Only of nodes that are not ready
// the cloud is asked.
func lives(instances Instances) control.Controller {
	return control.Controller{
		Name: "cloud-node-lifecycle-controller", For: gr.Nodes, Workers: 4,
		When: func(old, now kind.Object) bool {
			b, ok := now.(*corev1.Node)
			a, was := old.(*corev1.Node)
			return ok && b != nil && (!was || a == nil || ready(a) != ready(b) || tainted(a) != tainted(b))
		},
		Writes: []control.Write{{On: gr.Nodes, Do: "get update delete"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.DeletionTimestamp != nil {
				return 0, nil
			}
			if ready(n) {
				return 0, taint(ctx, c, n, false)
			}
			return askAfter, judge(ctx, c, n, instances)
		},
	}
}

// ready says that a node says it is.
func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func tainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == off && t.Effect == corev1.TaintEffectNoSchedule })
}

// judge asks the cloud about a node that is not ready.
func judge(ctx context.Context, c *control.Cluster, n *corev1.Node, instances Instances) error {
	exists, err := instances.Exists(ctx, n)
	if err != nil {
		return err
	}
	if !exists {
		return bury(ctx, c, n)
	}
	down, err := instances.Shutdown(ctx, n)
	if err != nil || !down {
		return err
	}
	return taint(ctx, c, n, true)
}

// bury deletes a Node, unless it has come back meanwhile: what the view shows may be old.
func bury(ctx context.Context, c *control.Cluster, seen *corev1.Node) error {
	o, err := c.Get(ctx, gr.Nodes, "", seen.Name, "")
	if err != nil {
		return control.Gone(err)
	}
	if n, ok := o.(*corev1.Node); !ok || n.UID != seen.UID || ready(n) {
		return nil
	}
	c.Event(seen, corev1.EventTypeNormal, "DeletingNode", "Deleting node %s because it does not exist in the cloud provider", seen.Name)
	err = control.Gone(c.Delete(ctx, gr.Nodes, "", seen.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.UID}}))
	if err != nil {
		c.Event(seen, corev1.EventTypeWarning, "DeletingNodeFailed", "Failed deleting node %s: %v", seen.Name, err)
	}
	return err
}

// taint puts the taint of switched-off machines on a node, or takes it away.
func taint(ctx context.Context, c *control.Cluster, n *corev1.Node, want bool) error {
	if tainted(n) == want {
		return nil
	}
	next := n.DeepCopy()
	next.Spec.Taints = slices.DeleteFunc(next.Spec.Taints, func(t corev1.Taint) bool { return t.Key == off && t.Effect == corev1.TaintEffectNoSchedule })
	if want {
		next.Spec.Taints = append(next.Spec.Taints, corev1.Taint{Key: off, Effect: corev1.TaintEffectNoSchedule})
	}
	_, err := c.Update(ctx, gr.Nodes, next, "")
	return control.Gone(err)
}
