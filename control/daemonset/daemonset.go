// Package daemonset keeps one Pod of a DaemonSet on every node where it belongs. The Pod is made for its node; the scheduler
// binds it there. Deciding is pure; the shell makes and removes Pods and keeps the history of templates.
package daemonset

import (
	"context"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/control"
	"proa.dev/control/revision"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

var gvk = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Controller returns the loop.
func Controller() control.Controller {
	wake := workload.Wake(gvk.GroupKind(), gr.DaemonSets, selector)
	held := newBackoff()
	return control.Controller{
		Name: "daemon-set-controller", Component: "daemonset-controller", For: gr.DaemonSets, Workers: 2,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: wake, When: workload.Matters},
			{On: gr.ControllerRevisions, Keys: wake, When: revision.Matters},
			{On: gr.Nodes, Keys: control.All(gr.DaemonSets), When: nodeMatters},
		},
		Writes: []control.Write{
			{On: gr.DaemonSets, Do: "get update/status"},
			{On: gr.Pods, Do: "create update delete"},
			{On: gr.ControllerRevisions, Do: "get create update delete"},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return reconcile(ctx, c, k, held)
		},
	}
}

func selector(o kind.Object) labels.Selector {
	ds, ok := o.(*appsv1.DaemonSet)
	if !ok {
		return nil
	}
	return workload.Selector(ds.Spec.Selector)
}

// nodeMatters leaves out what nodes say about themselves all the time: only labels and taints decide who belongs where.
func nodeMatters(old, now kind.Object) bool {
	before, was := old.(*corev1.Node)
	after, is := now.(*corev1.Node)
	if !was || !is {
		return true
	}
	return !maps.Equal(before.Labels, after.Labels) || !apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}
