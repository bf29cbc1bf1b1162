// Package deployment rolls Deployments out: it scales up a new ReplicaSet and scales down the old ones, within maxSurge and
// maxUnavailable. It keeps the old sets as revision history, scales them proportionally when the Deployment is scaled during
// a rollout, and reports the progress in the status.
package deployment

import (
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "deployment-controller", For: gr.Deployments, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.ReplicaSets, When: workload.WakesOwners,
				Keys: workload.WakeOwners(gvk().GroupKind(), gr.Deployments, func(o kind.Object) labels.Selector {
					return workload.Selector(o.(*appsv1.Deployment).Spec.Selector)
				})},
			{On: gr.Pods, When: hasEnded, Keys: recreatingDeployment},
		},
		Writes: []control.Write{
			{On: gr.Deployments, Do: "get update update/status"},
			{On: gr.ReplicaSets, Do: "get create update delete"},
		},
		Reconcile: reconcile,
	}
}

func gvk() schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind("Deployment") }

// hasEnded reports whether a change deletes a Pod, or makes it terminal.
func hasEnded(old, now kind.Object) bool {
	before, _ := old.(*corev1.Pod)
	after, _ := now.(*corev1.Pod)
	return before != nil && (after == nil || !workload.IsTerminal(before) && workload.IsTerminal(after))
}

// recreatingDeployment yields the Deployment of a Pod if its strategy is Recreate, so that it may wait for the Pod to end.
func recreatingDeployment(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		rs, found := controllerOf[*appsv1.ReplicaSet](c, gr.ReplicaSets, "ReplicaSet", o)
		if !found {
			return
		}
		d, found := controllerOf[*appsv1.Deployment](c, gr.Deployments, "Deployment", rs)
		if found && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
			yield(control.KeyOf(d))
		}
	}
}

func controllerOf[T kind.Object](c *control.Cluster, on schema.GroupResource, kindName string, o kind.Object) (T, bool) {
	var none T
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != kindName {
		return none, false
	}
	owner, found := control.Get[T](c, on, o.GetNamespace(), ref.Name)
	return owner, found && owner.GetUID() == ref.UID
}
