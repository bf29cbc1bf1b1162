// Package podgc deletes Pods that no kubelet deletes: those of deleted nodes, those that are being deleted on a node that is out
// of service or without a node, and the oldest terminal Pods above a threshold.
package podgc

import (
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Threshold is the default number of terminal Pods that a cluster keeps.
const Threshold = 12500

const (
	// quarantine is how long a node must be missing before its Pods are deleted.
	quarantine = 40 * time.Second
	// countInterval is the shortest interval between two counts of terminal Pods.
	countInterval = 20 * time.Second
)

// Controller returns the controller. Its keys are the names of nodes, including deleted ones; the empty name stands for the
// Pods without a node, and for the count of terminal ones. threshold is how many of these are kept; 0 for all.
func Controller(threshold int) control.Controller {
	r := &reconciler{threshold: threshold, missing: map[string]time.Time{}}
	return control.Controller{
		Name: "pod-garbage-collector", For: gr.Nodes, When: isRelevantNodeChange, Workers: 1,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: keysOfPod, When: isRelevantPodChange}},
		Writes: []control.Write{
			{On: gr.Nodes, Do: "get"},
			{On: gr.Pods, Do: "update/status delete"},
		},
		Reconcile: r.reconcile,
	}
}

type reconciler struct {
	threshold int

	mu      sync.Mutex // guards what follows
	missing map[string]time.Time
	counted time.Time
}

// keysOfPod yields the node of a Pod, and the empty key for a terminal Pod or one without a node that is being deleted. Other Pods
// without a node, of which there may be very many, wake nothing.
func keysOfPod(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		p, ok := o.(*corev1.Pod)
		if !ok || p.Spec.NodeName != "" && !yield(control.Key{Name: p.Spec.NodeName}) {
			return
		}
		if workload.IsTerminal(p) || p.Spec.NodeName == "" && p.DeletionTimestamp != nil {
			yield(control.Key{})
		}
	}
}

// isRelevantNodeChange ignores the frequent status updates of nodes.
func isRelevantNodeChange(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	return a == nil || b == nil || isOutOfService(a) != isOutOfService(b)
}

// isRelevantPodChange ignores changes after which no Pod has to be deleted.
func isRelevantPodChange(old, now kind.Object) bool {
	a, _ := old.(*corev1.Pod)
	b, _ := now.(*corev1.Pod)
	switch {
	case b == nil:
		return false
	case a == nil:
		return true
	}
	return a.Spec.NodeName != b.Spec.NodeName || a.DeletionTimestamp == nil && b.DeletionTimestamp != nil || !workload.IsTerminal(a) &&
		workload.IsTerminal(b)
}

// byTerminal indexes terminal Pods, all under one value.
func byTerminal() client.Index {
	return client.Index{Name: "ended", Values: func(o kind.Object) []string {
		if p, ok := o.(*corev1.Pod); ok && workload.IsTerminal(p) {
			return []string{"ended"}
		}
		return nil
	}}
}

// missingFor returns for how long a node has been missing.
func (r *reconciler) missingFor(node string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, known := r.missing[node]
	if !known || since.After(now) {
		r.missing[node] = now
		return 0
	}
	return now.Sub(since)
}

func (r *reconciler) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, node)
}

// untilNextCount returns the time until the next count of terminal Pods; if it is 0, a count begins now.
func (r *reconciler) untilNextCount(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := countInterval - now.Sub(r.counted); wait > 0 && !r.counted.After(now) {
		return wait
	}
	r.counted = now
	return 0
}

// podsOnNode returns the Pods that are bound to a node; with an empty name, those without a node.
func podsOnNode(c *control.Cluster, node string) []*corev1.Pod {
	return slices.Collect(control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), node))
}
