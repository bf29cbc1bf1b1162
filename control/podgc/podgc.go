// Package podgc removes Pods that nobody else will: those of nodes that are gone, those that are being deleted and wait for a node
// that does not answer or that they never had, and the oldest of too many that have ended.
package podgc

import (
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Threshold is how many Pods that have ended a cluster keeps unless told otherwise.
const Threshold = 12500

const (
	// quarantine is how long a node may be missing before its Pods are given up.
	quarantine = 40 * time.Second
	// pause is the least time between two counts of Pods that have ended.
	pause = 20 * time.Second
)

// Controller returns the loop. Its keys are the names of nodes, of such too as are not there any more; the empty name stands for the Pods
// that have no node, and for counting those that have ended. threshold is how many of these may stay; 0 for all.
func Controller(threshold int) control.Controller {
	r := &reconciler{threshold: threshold, missing: map[string]time.Time{}}
	return control.Controller{
		Name: "pod-garbage-collector", For: gr.Nodes, When: nodeMatters, Workers: 1,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: wake, When: podMatters}},
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

// wake wakes the node of a Pod; the count, for one that has ended; and the look at Pods without a node, for one that shall go. There
// may be very many of these, and one that only waits for a node changes nothing for them.
func wake(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		p, ok := o.(*corev1.Pod)
		if !ok || p.Spec.NodeName != "" && !yield(control.Key{Name: p.Spec.NodeName}) {
			return
		}
		if workload.Terminal(p) || p.Spec.NodeName == "" && p.DeletionTimestamp != nil {
			yield(control.Key{})
		}
	}
}

// nodeMatters leaves out what nodes say every few seconds.
func nodeMatters(old, now kind.Object) bool {
	a, _ := old.(*corev1.Node)
	b, _ := now.(*corev1.Node)
	return a == nil || b == nil || outOfService(a) != outOfService(b)
}

// podMatters leaves out changes that make no Pod a candidate.
func podMatters(old, now kind.Object) bool {
	a, _ := old.(*corev1.Pod)
	b, _ := now.(*corev1.Pod)
	switch {
	case b == nil:
		return false
	case a == nil:
		return true
	}
	return a.Spec.NodeName != b.Spec.NodeName || a.DeletionTimestamp == nil && b.DeletionTimestamp != nil || !workload.Terminal(a) && workload.Terminal(b)
}

// ended finds the Pods that have ended.
func ended() client.Index {
	return client.Index{Name: "ended", Of: func(o kind.Object) []string {
		if p, ok := o.(*corev1.Pod); ok && workload.Terminal(p) {
			return []string{"ended"}
		}
		return nil
	}}
}

// lost says how long a node has been missing.
func (r *reconciler) lost(node string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, known := r.missing[node]
	if !known || since.After(now) {
		r.missing[node] = now
		return 0
	}
	return now.Sub(since)
}

func (r *reconciler) found(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, node)
}

// tooSoon says how long to wait before the next count, and begins one if that is 0.
func (r *reconciler) tooSoon(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := pause - now.Sub(r.counted); wait > 0 && !r.counted.After(now) {
		return wait
	}
	r.counted = now
	return 0
}

// onNode are the Pods that are bound to a node, or with an empty name to none.
func onNode(c *control.Cluster, node string) []*corev1.Pod {
	return slices.Collect(control.By[*corev1.Pod](c, gr.Pods, client.ByNode(), node))
}
