package autoscale

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

// memory is what is remembered of one autoscaler. It is a value: whoever changes it makes another.
type memory struct {
	uid types.UID
	// recommendations are how many Pods were thought right, before any rule but the metrics.
	recommendations []mark
	// grown and shrunk are by how many Pods the workload was changed.
	grown, shrunk []mark
	selector      labels.Selector
}

type mark struct {
	n  int32
	at time.Time
}

// since drops the marks that are older than a time.
func since(marks []mark, cutoff time.Time) []mark {
	return slices.DeleteFunc(slices.Clone(marks), func(m mark) bool { return m.at.Before(cutoff) })
}

// changed is by how many Pods a workload changed in a period.
func changed(marks []mark, seconds int32, now time.Time) (n int32) {
	cutoff := now.Add(-time.Duration(seconds) * time.Second)
	for _, m := range marks {
		if m.at.After(cutoff) {
			n += m.n
		}
	}
	return n
}

// longestPeriod is the longest that a policy may look back.
const longestPeriod = 1800 * time.Second

// scaled remembers a change of the workload. Only policies ask for it.
func (m memory) scaled(h *autoscalingv2.HorizontalPodAutoscaler, from, to int32, now time.Time) memory {
	if h.Spec.Behavior == nil {
		return m
	}
	if to > from {
		m.grown = append(since(m.grown, now.Add(-longestPeriod)), mark{to - from, now})
	} else {
		m.shrunk = append(since(m.shrunk, now.Add(-longestPeriod)), mark{from - to, now})
	}
	return m
}

// memories are those of all autoscalers.
type memories struct {
	mu  sync.Mutex // guards what follows
	all map[control.Key]memory
}

func newMemories() *memories { return &memories{all: map[control.Key]memory{}} }

// get returns the memory of an autoscaler; one that was made anew has none.
func (m *memories) get(k control.Key, uid types.UID) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if have := m.all[k]; have.uid == uid {
		return have
	}
	return memory{uid: uid}
}

func (m *memories) put(k control.Key, is memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[k] = is
}

func (m *memories) forget(k control.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, k)
}

// rivals are the other autoscalers of a namespace that are known to select one of the Pods, by name: one at most, as one
// too many is enough. Those that live no more are none.
func (m *memories) rivals(k control.Key, pods []*corev1.Pod, lives func(control.Key, types.UID) bool) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, is := range m.all {
		if other.Namespace == k.Namespace && other != k && is.selector != nil && lives(other, is.uid) &&
			slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return is.selector.Matches(labels.Set(p.Labels)) }) {
			names = append(names, fmt.Sprintf("%s/%s", other.Namespace, other.Name))
		}
	}
	slices.Sort(names)
	return names[:min(1, len(names))]
}
