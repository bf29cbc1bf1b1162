package podautoscaler

import (
	"fmt"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
)

// history is the history of one autoscaler. It is a value, and is never changed in place.
type history struct {
	uid types.UID
	// recommendations are the numbers of Pods that the metrics proposed, before any limits.
	recommendations []timedCount
	// grown and shrunk are the changes of the workload, in Pods.
	grown, shrunk []timedCount
	selector      labels.Selector
}

type timedCount struct {
	n  int32
	at time.Time
}

// newerThan returns the marks that are not older than a time.
func newerThan(marks []timedCount, cutoff time.Time) []timedCount {
	return slices.DeleteFunc(slices.Clone(marks), func(m timedCount) bool { return m.at.Before(cutoff) })
}

// changedReplicas returns by how many Pods a workload changed in the last seconds.
func changedReplicas(marks []timedCount, seconds int32, now time.Time) (n int32) {
	cutoff := now.Add(-time.Duration(seconds) * time.Second)
	for _, m := range marks {
		if m.at.After(cutoff) {
			n += m.n
		}
	}
	return n
}

// longestPeriod is the longest period of a policy.
const longestPeriod = 1800 * time.Second

// afterRescale returns the history with a change of the workload, if the autoscaler has policies, which need it.
func (m history) afterRescale(h *autoscalingv2.HorizontalPodAutoscaler, from, to int32, now time.Time) history {
	if h.Spec.Behavior == nil {
		return m
	}
	if to > from {
		m.grown = append(newerThan(m.grown, now.Add(-longestPeriod)), timedCount{to - from, now})
	} else {
		m.shrunk = append(newerThan(m.shrunk, now.Add(-longestPeriod)), timedCount{from - to, now})
	}
	return m
}

// histories has the histories of all autoscalers.
type histories struct {
	mu  sync.Mutex // guards what follows
	all map[control.Key]history
}

func newHistories() *histories { return &histories{all: map[control.Key]history{}} }

// get returns the history of an autoscaler; empty for one that was deleted and created again.
func (m *histories) get(k control.Key, uid types.UID) history {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.all[k]; have.uid == uid {
		return have
	}
	return history{uid: uid}
}

func (m *histories) put(k control.Key, is history) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[k] = is
}

func (m *histories) forget(k control.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, k)
}

// otherAutoscalers returns the name of another autoscaler of the namespace that selects one of the Pods and still exists. It returns
// one name at most, which is enough for the Event.
func (m *histories) otherAutoscalers(k control.Key, pods []*corev1.Pod, exists func(control.Key, types.UID) bool) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, is := range m.all {
		if other.Namespace == k.Namespace && other != k && is.selector != nil && exists(other, is.uid) &&
			slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return is.selector.Matches(labels.Set(p.Labels)) }) {
			names = append(names, fmt.Sprintf("%s/%s", other.Namespace, other.Name))
		}
	}
	slices.Sort(names)
	return names[:min(1, len(names))]
}
