// Package statefulset keeps the Pods of StatefulSets: each has an ordinal in its name, a place in an order, and claims for
// volumes that outlive it. The decisions are pure functions that return a plan of steps; apply carries them out and records
// an Event for each.
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
	"proa.dev/control/lib/revision"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/apps"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

var (
	gvk     = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	podKind = corev1.SchemeGroupVersion.WithKind("Pod")
)

// Controller returns the controller.
func Controller() control.Controller {
	def := apps.StatefulSets()
	wake := workload.WakeOwners(gvk.GroupKind(), gr.StatefulSets, selector)
	return control.Controller{
		Name: "statefulset-controller", For: gr.StatefulSets, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: wake, When: workload.WakesOwners},
			{On: gr.Pods, Keys: setOfPodName, When: func(_, now kind.Object) bool { return now == nil }},
			{On: gr.ControllerRevisions, Keys: wake, When: revision.WakesOwners},
			{On: gr.PersistentVolumeClaims, Keys: setsOfClaim, When: isRelevantClaimChange},
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

// setOfPodName yields the set to which the name of a deleted Pod belongs, whoever created the Pod: the name is free now.
func setOfPodName(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if at := strings.LastIndexByte(o.GetName(), '-'); at > 0 {
			yield(control.Key{Namespace: o.GetNamespace(), Name: o.GetName()[:at]})
		}
	}
}

// isRelevantClaimChange reports whether a claim may begin or cease to block its Pod.
func isRelevantClaimChange(old, now kind.Object) bool {
	if old == nil || now == nil {
		return now == nil
	}
	return (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!apiequality.Semantic.DeepEqual(old.GetOwnerReferences(), now.GetOwnerReferences())
}

// setsOfClaim yields the sets whose Pods have a claim of the name.
func setsOfClaim(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for set := range control.List[*appsv1.StatefulSet](c, gr.StatefulSets, o.GetNamespace()) {
			if hasClaim(set, o.GetName()) && !yield(control.KeyOf(set)) {
				return
			}
		}
	}
}

// hasClaim reports whether a claim's name is one of the names of a set's claims.
func hasClaim(set *appsv1.StatefulSet, claim string) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		number, found := strings.CutPrefix(claim, set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name+"-")
		if found && number != "" && strings.Trim(number, "0123456789") == "" {
			return true
		}
	}
	return false
}
