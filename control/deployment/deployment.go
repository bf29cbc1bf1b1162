// Package deployment rolls ReplicaSets from one Pod template to the next: a new set grows as the old ones shrink, within
// what may be missing and what may be too much at any time. It keeps the old sets as history, scales all of them in
// proportion while a rollout is under way, and tells in the status how far it is.
package deployment

import (
	"iter"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Controller returns the loop.
func Controller() control.Controller {
	return control.Controller{
		Name: "deployment-controller", For: gr.Deployments, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.ReplicaSets, When: workload.Matters, Keys: workload.Wake(gvk().GroupKind(), gr.Deployments, func(o kind.Object) labels.Selector {
				return workload.Selector(o.(*appsv1.Deployment).Spec.Selector)
			})},
			{On: gr.Pods, When: ended, Keys: recreating},
		},
		Writes: []control.Write{
			{On: gr.Deployments, Do: "get update update/status"},
			{On: gr.ReplicaSets, Do: "get create update delete"},
		},
		Reconcile: reconcile,
	}
}

func gvk() schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind("Deployment") }

// ended says that a Pod has gone, or runs no more.
func ended(old, now kind.Object) bool {
	before, _ := old.(*corev1.Pod)
	after, _ := now.(*corev1.Pod)
	return before != nil && (after == nil || !workload.Terminal(before) && workload.Terminal(after))
}

// recreating finds the Deployment of a Pod if that waits for the old Pods to be gone.
func recreating(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
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
