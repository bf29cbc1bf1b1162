// Package tainteviction evicts Pods from nodes with NoExecute taints that they do not tolerate, or tolerate only for a while.
package tainteviction

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/duration"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/placement"
)

// Controller returns the controller.
func Controller() control.Controller {
	m := &pendingEvictions{since: map[types.UID]time.Time{}}
	return control.Controller{
		Name: "taint-eviction-controller", For: gr.Pods, Workers: 8,
		When: func(old, now kind.Object) bool {
			p, ok := now.(*corev1.Pod)
			if !ok {
				return true // a deleted Pod is removed from memory
			}
			was, had := old.(*corev1.Pod)
			return p.Spec.NodeName != "" &&
				(!had || was.Spec.NodeName == "" || !apiequality.Semantic.DeepEqual(was.Spec.Tolerations, p.Spec.Tolerations))
		},
		Triggers: []control.Trigger{{On: gr.Nodes, Keys: control.PodsOnNode, When: func(old, now kind.Object) bool {
			return !apiequality.Semantic.DeepEqual(noExecuteTaints(old), noExecuteTaints(now))
		}}},
		Writes: []control.Write{{On: gr.Pods, Do: "delete update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return m.reconcile(ctx, c, k)
		},
	}
}

// noExecuteTaints returns the NoExecute taints of a node.
func noExecuteTaints(o kind.Object) (out []corev1.Taint) {
	n, ok := o.(*corev1.Node)
	if !ok || n == nil {
		return nil
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}

// pendingEvictions remembers since when Pods are pending eviction, because a taint need not have a time. After a restart the times begin
// anew.
type pendingEvictions struct {
	mu    sync.Mutex // guards since
	since map[types.UID]time.Time
}

// pendingSince returns since when a Pod is pending eviction.
func (m *pendingEvictions) pendingSince(uid types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.since[uid]
	if !ok {
		at = now
		m.since[uid] = now
	}
	return at
}

// cancel forgets that a Pod is pending eviction, and reports whether it was.
func (m *pendingEvictions) cancel(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.since[uid]
	delete(m.since, uid)
	return ok
}

func (m *pendingEvictions) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	pod, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
	if !found {
		m.prune(c)
		return 0, nil
	}
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		m.cancel(pod.UID)
		return 0, nil
	}
	node, found := control.Get[*corev1.Node](c, gr.Nodes, "", pod.Spec.NodeName)
	if !found {
		return 0, nil
	}
	after, evicted := toleratedFor(noExecuteTaints(node), pod.Spec.Tolerations)
	if !evicted {
		if m.cancel(pod.UID) {
			c.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s/%s", pod.Namespace, pod.Name)
		}
		return 0, nil
	}
	now := time.Now()
	if left := m.pendingSince(pod.UID, now).Add(after).Sub(now); left > 0 {
		return left, nil
	}
	return 0, evict(ctx, c, pod, now)
}

// prune forgets deleted Pods when many are remembered.
func (m *pendingEvictions) prune(c *control.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.since) < 1024 {
		return
	}
	exists := map[types.UID]bool{}
	for p := range c.View(gr.Pods).List("") {
		exists[p.GetUID()] = true
	}
	for uid := range m.since {
		if !exists[uid] {
			delete(m.since, uid)
		}
	}
}

// toleratedFor reports whether a Pod has to be evicted because of taints, and after how long: the shortest time of all matching
// tolerations.
func toleratedFor(taints []corev1.Taint, tolerations []corev1.Toleration) (after time.Duration, evicted bool) {
	forever := true
	after = time.Duration(1<<63 - 1)
	for i := range taints {
		tolerated := false
		for j := range tolerations {
			t := &tolerations[j]
			if !placement.Tolerates(t, &taints[i]) {
				continue
			}
			tolerated = true
			if s := t.TolerationSeconds; s != nil {
				forever = false
				after = min(after, max(0, duration.FromSeconds(*s)))
			}
		}
		if !tolerated {
			return 0, true
		}
	}
	return after, len(taints) > 0 && !forever
}

// evict records an Event and evicts a Pod.
func evict(ctx context.Context, c *control.Cluster, pod *corev1.Pod, now time.Time) error {
	c.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	return workload.Evict(ctx, c, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now)
}
