// Package replicaset keeps the number of Pods that a ReplicaSet or a ReplicationController wants. The two differ in their
// types only and share the code.
package replicaset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller of ReplicaSets.
func Controller() control.Controller {
	return newController("replicaset-controller", &variant{
		gvk: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), on: gr.ReplicaSets, terminating: true,
		read: func(o kind.Object) *appsv1.ReplicaSet { return o.(*appsv1.ReplicaSet) },
		with: func(o kind.Object, s appsv1.ReplicaSetStatus) kind.Object {
			out := o.(*appsv1.ReplicaSet).DeepCopy()
			out.Status = s
			return out
		},
		selector: func(o kind.Object) labels.Selector { return workload.Selector(o.(*appsv1.ReplicaSet).Spec.Selector) },
	})
}

// Replication returns the controller of ReplicationControllers.
func Replication() control.Controller {
	return newController("replication-controller", &variant{
		gvk: corev1.SchemeGroupVersion.WithKind("ReplicationController"), on: gr.ReplicationControllers,
		read: fromReplicationController, with: withStatus,
		selector: func(o kind.Object) labels.Selector {
			return labels.SelectorFromSet(o.(*corev1.ReplicationController).Spec.Selector)
		},
	})
}

// variant has what differs between the two kinds.
type variant struct {
	gvk schema.GroupVersionKind
	on  schema.GroupResource
	// terminating is true if the status counts terminating Pods.
	terminating bool
	// read converts an object to a ReplicaSet, and with returns a copy of an object with a status.
	read     func(kind.Object) *appsv1.ReplicaSet
	with     func(kind.Object, appsv1.ReplicaSetStatus) kind.Object
	selector func(kind.Object) labels.Selector
}

func newController(name string, f *variant) control.Controller {
	return control.Controller{
		Name: name, For: f.on, Workers: 5,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: workload.WakeOwners(f.gvk.GroupKind(), f.on, f.selector),
			When: isRelevantPodChange}},
		Writes:    []control.Write{{On: f.on, Do: "get update/status"}, {On: gr.Pods, Do: "create delete update"}},
		Reconcile: f.reconcile,
	}
}

// isRelevantPodChange ignores changes of Pods that change neither a count nor the ownership.
func isRelevantPodChange(old, now kind.Object) bool {
	if !workload.WakesOwners(old, now) {
		return false
	}
	before, _ := old.(*corev1.Pod)
	after, _ := now.(*corev1.Pod)
	if before == nil || after == nil {
		return true
	}
	return before.UID != after.UID || before.Status.Phase != after.Status.Phase || !hasSameReady(before, after) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) || !hasSameOwnership(before, after)
}

// fromReplicationController converts a ReplicationController to a ReplicaSet.
func fromReplicationController(o kind.Object) *appsv1.ReplicaSet {
	rc := o.(*corev1.ReplicationController)
	out := &appsv1.ReplicaSet{ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds}}
	if rc.Spec.Template != nil {
		out.Spec.Template = *rc.Spec.Template
	}
	s := &rc.Status
	out.Status = appsv1.ReplicaSetStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason,
			Message: c.Message,
		})
	}
	return out
}

func withStatus(o kind.Object, s appsv1.ReplicaSetStatus) kind.Object {
	out := o.(*corev1.ReplicationController).DeepCopy()
	out.Status = corev1.ReplicationControllerStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}
