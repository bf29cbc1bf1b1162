// Package statefulset keeps the Pods of StatefulSets: each has a name with a number, a place in an order, and claims for
// volumes that outlive it. Deciding is pure and yields a plan of steps; the shell does them and tells about each in an
// Event.
package statefulset

import (
	"context"
	"iter"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/control"
	"proa.dev/control/revision"
	"proa.dev/control/workload"
	"proa.dev/kinds/apps"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

var (
	gvk     = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	podKind = corev1.SchemeGroupVersion.WithKind("Pod")
)

// Controller returns the loop.
func Controller() control.Controller {
	def := apps.StatefulSets()
	wake := workload.Wake(gvk.GroupKind(), gr.StatefulSets, selector)
	return control.Controller{
		Name: "statefulset-controller", For: gr.StatefulSets, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: wake, When: workload.Matters},
			{On: gr.Pods, Keys: ofName, When: func(_, now kind.Object) bool { return now == nil }},
			{On: gr.ControllerRevisions, Keys: wake, When: revision.Matters},
			{On: gr.PersistentVolumeClaims, Keys: ofClaim, When: claimMatters},
		},
		Writes: []control.Write{
			{On: gr.StatefulSets, Do: "get update/status"},
			{On: gr.Pods, Do: "create update delete"},
			{On: gr.PersistentVolumeClaims, Do: "create update"},
			{On: gr.ControllerRevisions, Do: "get create update delete"},
		},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return reconcile(ctx, c, k, func(s *appsv1.StatefulSet) { def.Default(s) })
		},
	}
}

func selector(o kind.Object) labels.Selector {
	set, ok := o.(*appsv1.StatefulSet)
	if !ok {
		return nil
	}
	return workload.Selector(set.Spec.Selector)
}

// ofName wakes the set that would give a Pod its name, whoever had made it: once that is gone, the name is free.
func ofName(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if at := strings.LastIndexByte(o.GetName(), '-'); at > 0 {
			yield(control.Key{Namespace: o.GetNamespace(), Name: o.GetName()[:at]})
		}
	}
}

// claimMatters tells when a claim may hold up its Pod or stop doing so.
func claimMatters(old, now kind.Object) bool {
	if old == nil || now == nil {
		return now == nil
	}
	return (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!apiequality.Semantic.DeepEqual(old.GetOwnerReferences(), now.GetOwnerReferences())
}

// ofClaim wakes the sets whose Pods a claim is for, by its name.
func ofClaim(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for set := range control.List[*appsv1.StatefulSet](c, gr.StatefulSets, o.GetNamespace()) {
			if hasClaim(set, o.GetName()) && !yield(control.KeyOf(set)) {
				return
			}
		}
	}
}

// hasClaim says that a claim's name is one that a set gives.
func hasClaim(set *appsv1.StatefulSet, claim string) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		number, found := strings.CutPrefix(claim, set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name+"-")
		if found && number != "" && strings.Trim(number, "0123456789") == "" {
			return true
		}
	}
	return false
}
