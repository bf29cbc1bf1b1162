package cloud

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

const (
	// shutdownTaint is the taint of nodes whose machine is switched off.
	shutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"
	// checkInterval is the interval at which the cloud is asked about a node that is not ready.
	checkInterval = 5 * time.Second
)

// nodeLifecycleController returns the controller that deletes Nodes whose machine no longer exists, and taints those
// whose machine is switched off. It asks the cloud only about nodes that are not ready.
func nodeLifecycleController(instances Instances) control.Controller {
	return control.Controller{
		Name: "cloud-node-lifecycle-controller", For: gr.Nodes, Workers: 4,
		When: func(old, now kind.Object) bool {
			b, ok := now.(*corev1.Node)
			a, was := old.(*corev1.Node)
			return ok && b != nil && (!was || a == nil || isReady(a) != isReady(b) || hasShutdownTaint(a) != hasShutdownTaint(b))
		},
		Writes: []control.Write{{On: gr.Nodes, Do: "get update delete"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.DeletionTimestamp != nil {
				return 0, nil
			}
			if isReady(n) {
				return 0, setShutdownTaint(ctx, c, n, false)
			}
			return checkInterval, checkInstance(ctx, c, n, instances)
		},
	}
}

// isReady reports whether a node has the condition Ready.
func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func hasShutdownTaint(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == shutdownTaint && t.Effect == corev1.TaintEffectNoSchedule })
}

// checkInstance asks the cloud about a node that is not ready, and deletes or taints it.
func checkInstance(ctx context.Context, c *control.Cluster, n *corev1.Node, instances Instances) error {
	exists, err := instances.Exists(ctx, n)
	if err != nil {
		return err
	}
	if !exists {
		return deleteNode(ctx, c, n)
	}
	down, err := instances.Shutdown(ctx, n)
	if err != nil || !down {
		return err
	}
	return setShutdownTaint(ctx, c, n, true)
}

// deleteNode deletes a Node, unless the server says that it has become ready meanwhile: the view may lag behind.
func deleteNode(ctx context.Context, c *control.Cluster, seen *corev1.Node) error {
	o, err := c.Get(ctx, gr.Nodes, "", seen.Name, "")
	if err != nil {
		return control.IgnoreNotFound(err)
	}
	if n, ok := o.(*corev1.Node); !ok || n.UID != seen.UID || isReady(n) {
		return nil
	}
	c.Event(seen, corev1.EventTypeNormal, "DeletingNode", "Deleting node %s because it does not exist in the cloud provider", seen.Name)
	err = control.IgnoreNotFound(c.Delete(ctx, gr.Nodes, "", seen.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &seen.UID}}))
	if err != nil {
		c.Event(seen, corev1.EventTypeWarning, "DeletingNodeFailed", "Failed deleting node %s: %v", seen.Name, err)
	}
	return err
}

// setShutdownTaint adds or removes the taint of switched-off machines.
func setShutdownTaint(ctx context.Context, c *control.Cluster, n *corev1.Node, want bool) error {
	if hasShutdownTaint(n) == want {
		return nil
	}
	next := n.DeepCopy()
	next.Spec.Taints = slices.DeleteFunc(next.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == shutdownTaint && t.Effect == corev1.TaintEffectNoSchedule })
	if want {
		next.Spec.Taints = append(next.Spec.Taints, corev1.Taint{Key: shutdownTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	_, err := c.Update(ctx, gr.Nodes, next, "")
	return control.IgnoreNotFound(err)
}
