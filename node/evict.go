package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/eviction"
	"proa.dev/node/stats"
)

// openEviction makes the eviction manager.
func (a *Agent) openEviction(recorder podEvents) {
	a.evictor = eviction.New(eviction.Config{
		Thresholds: a.thresholds,
		Measure:    func(ctx context.Context) (*statsv1.Summary, error) { return a.stats.Summary(ctx, stats.Whole) },
		Layout:     func(context.Context) (eviction.Layout, error) { return eviction.Layout{}, nil },
		Pods:       a.activePods, Evict: a.pods.End, HasEnded: a.hasEnded, FreeImages: a.collector.DeleteUnused,
		Events: recorder, RecordNodeEvent: a.recordNodeEvent, Changed: a.refreshNode, Metrics: a.counts, Log: a.Log,
	})
}

// evictionReserve returns how much of a capacity the hard eviction thresholds keep free.
func (a *Agent) evictionReserve(capacity corev1.ResourceList) corev1.ResourceList {
	return eviction.Reserved(a.thresholds, capacity)
}

// pressures returns the pressure conditions that the node has.
func (a *Agent) pressures() (out []corev1.NodeConditionType) {
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if _, is := a.pressure(t); is {
			out = append(out, t)
		}
	}
	return out
}

// activePods returns the Pods that run or are about to.
func (a *Agent) activePods() (out []*corev1.Pod) {
	for _, x := range a.pods.Pods() {
		if !isTerminal(x.Pod) && !x.Ended {
			out = append(out, x.Pod)
		}
	}
	return out
}

// hasEnded reports whether no container of a Pod runs any more.
func (a *Agent) hasEnded(uid types.UID) bool {
	x, here := a.pods.Find(uid)
	return !here || isTerminal(x.Pod)
}
