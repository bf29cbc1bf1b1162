// Package disruption keeps the status of PodDisruptionBudgets: how many Pods there should be, how many are healthy, and how
// many may be evicted. It also resets the condition DisruptionTarget of Pods whose disruption did not happen.
package disruption

import (
	"iter"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Mapper finds the resource of a kind, and whether it has the subresource scale. A kind that is not served is an error.
type Mapper func(schema.GroupVersionKind) (on schema.GroupResource, scales bool, err error)

// Controller returns the controller. Its keys are budgets, and Pods, whose names have a slash as prefix.
func Controller(mapper Mapper) control.Controller {
	r := &reconciler{mapper}
	owners := func(on schema.GroupResource) control.Trigger {
		return control.Trigger{On: on, Keys: keysOfOwner, When: hasNewScale}
	}
	return control.Controller{
		Name: "disruption-controller", Component: "controllermanager", For: gr.PodDisruptionBudgets, Workers: 5,
		Triggers: []control.Trigger{
			{On: gr.Pods, Keys: keysOfPod, When: isRelevantPodChange},
			owners(gr.ReplicationControllers), owners(gr.ReplicaSets), owners(gr.Deployments), owners(gr.StatefulSets),
		},
		Writes: []control.Write{
			{On: gr.PodDisruptionBudgets, Do: "update/status"},
			{On: gr.Pods, Do: "update/status"},
			{On: control.Any(), Do: "get/scale"},
		},
		Reconcile: r.reconcile,
	}
}

// budgetsOf yields the budgets whose selectors match labels, in the order of their names.
func budgetsOf(c *control.Cluster, namespace string, of map[string]string) iter.Seq[*policyv1.PodDisruptionBudget] {
	return func(yield func(*policyv1.PodDisruptionBudget) bool) {
		for b := range control.List[*policyv1.PodDisruptionBudget](c, gr.PodDisruptionBudgets, namespace) {
			if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(of)) && !yield(b) {
				return
			}
		}
	}
}

// keysOfPod yields the budgets of a Pod, and the Pod itself if it is a disruption target.
func keysOfPod(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		budgets := slices.Collect(budgetsOf(c, o.GetNamespace(), o.GetLabels()))
		if len(budgets) > 1 && isCurrent(c, o) {
			c.Event(o, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
				"Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", o.GetNamespace(), o.GetName(), budgets[0].Name)
		}
		for _, b := range budgets {
			if !yield(control.KeyOf(b)) {
				return
			}
		}
		if p, ok := o.(*corev1.Pod); ok && isDisruptionTarget(p) {
			yield(control.Key{Namespace: p.Namespace, Name: "/" + p.Name})
		}
	}
}

// isCurrent reports whether a Pod is the one in the view, and not its state before a change.
func isCurrent(c *control.Cluster, o kind.Object) bool {
	now, found := c.View(gr.Pods).Get(o.GetNamespace(), o.GetName())
	return found && now.GetResourceVersion() == o.GetResourceVersion()
}

// isRelevantPodChange ignores changes of Pods that change no count.
func isRelevantPodChange(old, now kind.Object) bool {
	a, _ := old.(*corev1.Pod)
	b, _ := now.(*corev1.Pod)
	return a == nil || b == nil || workload.IsReady(a) != workload.IsReady(b) ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		isDisruptionTarget(a) != isDisruptionTarget(b) || !apiequality.Semantic.DeepEqual(a.Labels, b.Labels) ||
		!apiequality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// keysOfOwner yields the budgets of the Pods that an owner creates.
func keysOfOwner(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		_, of := scaleOf(o)
		for b := range budgetsOf(c, o.GetNamespace(), of) {
			if !yield(control.KeyOf(b)) {
				return
			}
		}
	}
}

// hasNewScale ignores changes of owners that do not change how many Pods there should be.
func hasNewScale(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	a, _ := scaleOf(old)
	b, _ := scaleOf(now)
	return a != b || !apiequality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(old), metav1.GetControllerOfNoCopy(now))
}

// scaleOf returns the replicas of an owner, and the labels of its Pods.
func scaleOf(o kind.Object) (int32, map[string]string) {
	n := func(replicas *int32) int32 {
		if replicas == nil {
			return 1
		}
		return *replicas
	}
	switch o := o.(type) {
	case *appsv1.Deployment:
		return n(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.ReplicaSet:
		return n(o.Spec.Replicas), o.Spec.Template.Labels
	case *appsv1.StatefulSet:
		return n(o.Spec.Replicas), o.Spec.Template.Labels
	case *corev1.ReplicationController:
		if t := o.Spec.Template; t != nil {
			return n(o.Spec.Replicas), t.Labels
		}
		return n(o.Spec.Replicas), nil
	}
	return 0, nil
}

// podOf returns the Pod that a key names, if it names one.
func podOf(k control.Key) (name string, is bool) { return strings.CutPrefix(k.Name, "/") }

// timeout is how long after its announcement a disruption must have begun.
const timeout = 2 * time.Minute
