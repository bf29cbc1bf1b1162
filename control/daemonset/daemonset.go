// Package daemonset keeps one Pod of a DaemonSet on every eligible node. A Pod has a node affinity for its node; the
// scheduler binds it there. The decisions are pure functions; reconcile creates and deletes Pods and keeps the revision
// history.
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
	"proa.dev/control/lib/revision"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

var gvk = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// Controller returns the controller.
func Controller() control.Controller {
	wake := workload.WakeOwners(gvk.GroupKind(), gr.DaemonSets, selector)
	podBackoff := newBackoff()
	return control.Controller{
		Name: "daemon-set-controller", Component: "daemonset-controller", For: gr.DaemonSets, Workers: 2,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: wake, When: workload.WakesOwners},
			{On: gr.ControllerRevisions, Keys: wake, When: revision.WakesOwners},
			{On: gr.Nodes, Keys: control.AllKeys(gr.DaemonSets), When: isRelevantNodeChange},
		},
		Writes: []control.Write{
			{On: gr.DaemonSets, Do: "get update/status"},
			{On: gr.Pods, Do: "create update delete"},
			{On: gr.ControllerRevisions, Do: "get create update delete"},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return reconcile(ctx, c, k, podBackoff)
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

// isRelevantNodeChange ignores the frequent status updates of nodes: only labels and taints decide which nodes are eligible.
func isRelevantNodeChange(old, now kind.Object) bool {
	before, was := old.(*corev1.Node)
	after, is := now.(*corev1.Node)
	if !was || !is {
		return true
	}
	return !maps.Equal(before.Labels, after.Labels) || !apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}
