// Package tainteviction deletes Pods from nodes with NoExecute taints that they do not tolerate, or tolerate only for a while.
package tainteviction

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/period"
	"proa.dev/kinds/placement"
)

// Controller returns the loop.
func Controller() control.Controller {
	m := &memory{since: map[types.UID]time.Time{}}
	return control.Controller{
		Name: "taint-eviction-controller", For: gr.Pods, Workers: 8,
		When: func(old, now kind.Object) bool {
			p, ok := now.(*corev1.Pod)
			if !ok {
				return true // a deleted Pod is to be forgotten
			}
			was, had := old.(*corev1.Pod)
			return p.Spec.NodeName != "" && (!had || was.Spec.NodeName == "" || !apiequality.Semantic.DeepEqual(was.Spec.Tolerations, p.Spec.Tolerations))
		},
		Triggers: []control.Trigger{{On: gr.Nodes, Keys: control.OnNode, When: func(old, now kind.Object) bool {
			return !apiequality.Semantic.DeepEqual(driving(old), driving(now))
		}}},
		Writes: []control.Write{{On: gr.Pods, Do: "delete update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			return m.reconcile(ctx, c, k)
		},
	}
}

// driving are the taints of a node that drive Pods off.
func driving(o kind.Object) (out []corev1.Taint) {
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

// memory is since when a Pod has been bound to go: a taint need not say when it was put on. After a restart the time begins
// anew.
type memory struct {
	mu    sync.Mutex // guards since
	since map[types.UID]time.Time
}

// first returns when a Pod was first bound to go.
func (m *memory) first(uid types.UID, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.since[uid]
	if !ok {
		at = now
		m.since[uid] = now
	}
	return at
}

// cancel forgets that a Pod is bound to go, and says whether it was.
func (m *memory) cancel(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.since[uid]
	delete(m.since, uid)
	return ok
}

func (m *memory) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
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
	after, goes := stay(driving(node), pod.Spec.Tolerations)
	if !goes {
		if m.cancel(pod.UID) {
			c.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s/%s", pod.Namespace, pod.Name)
		}
		return 0, nil
	}
	now := time.Now()
	if left := m.first(pod.UID, now).Add(after).Sub(now); left > 0 {
		return left, nil
	}
	return 0, evict(ctx, c, pod, now)
}

// prune forgets Pods that are gone, now and then.
func (m *memory) prune(c *control.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.since) < 1024 {
		return
	}
	living := map[types.UID]bool{}
	for p := range c.View(gr.Pods).List("") {
		living[p.GetUID()] = true
	}
	for uid := range m.since {
		if !living[uid] {
			delete(m.since, uid)
		}
	}
}

// stay says whether a Pod has to go because of taints, and how long it may stay: the shortest time of all tolerations that
// count.
func stay(taints []corev1.Taint, tolerations []corev1.Toleration) (after time.Duration, goes bool) {
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
				after = min(after, max(0, period.Seconds(*s)))
			}
		}
		if !tolerated {
			return 0, true
		}
	}
	return after, len(taints) > 0 && !forever
}

// evict tells people why a Pod goes, and lets it go.
func evict(ctx context.Context, c *control.Cluster, pod *corev1.Pod, now time.Time) error {
	c.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	return workload.Evict(ctx, c, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now)
}
