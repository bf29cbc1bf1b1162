package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/evict"
	"proa.dev/node/stats"
)

// openEviction makes the part that keeps the node from running short.
func (a *Agent) openEviction(recorder podEvents) {
	a.evictor = evict.New(evict.Config{
		Thresholds: a.thresholds,
		Look:       func(ctx context.Context) (*statsv1.Summary, error) { return a.stats.Summary(ctx, stats.Whole) },
		Layout:     func(context.Context) (evict.Layout, error) { return evict.Layout{}, nil },
		Pods:       a.active, Evict: a.pods.End, Gone: a.gone, FreeImages: a.collector.DeleteUnused,
		Events: recorder, TellNode: a.noteNode, Changed: func() { a.node.Poke() }, Log: a.Log,
	})
}

// evicting is what eviction keeps free of a capacity.
func (a *Agent) evicting(capacity corev1.ResourceList) corev1.ResourceList {
	return evict.Reserved(a.thresholds, capacity)
}

// pressure are the conditions under which the node runs short of something.
func (a *Agent) pressure() (out []corev1.NodeConditionType) {
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if a.evictor.Pressed(t) {
			out = append(out, t)
		}
	}
	return out
}

// active are the Pods that run or are about to.
func (a *Agent) active() (out []*corev1.Pod) {
	for _, x := range a.pods.Pods() {
		if !over(x.Pod) && !x.Ended {
			out = append(out, x.Pod)
		}
	}
	return out
}

// gone says that nothing of a Pod runs any more.
func (a *Agent) gone(uid types.UID) bool {
	x, here := a.pods.Find(uid)
	return !here || over(x.Pod)
}
