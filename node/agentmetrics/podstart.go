package agentmetrics

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
)

// podStart is what is known of the start of a Pod, until its containers have started.
type podStart struct {
	pulling []time.Time // when the pulls under way have begun
	pulled  time.Duration
	counted time.Time // the end of the last pull that pulled includes
	done    bool      // the start was recorded, or is not to be
}

// PodObserved records the start of a Pod once the API shows that all its containers have started. It is called for every
// version of a Pod that the API sends. f is what the runtime has of the Pod, nil if that is not known.
//
// As in the kubelet, Pods do not count that had started before the agent first saw them, or that the scheduler could not
// place at once.
func (m *Metrics) PodObserved(p *corev1.Pod, f *fact.Pod, now time.Time) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.starts[p.UID]
	if s == nil {
		m.starts[p.UID] = &podStart{done: p.Status.StartTime != nil || p.CreationTimestamp.IsZero() || wasUnschedulable(p)}
		return
	}
	if s.done || p.Status.StartTime == nil || !haveContainersStarted(p) {
		return
	}
	s.done = true
	if isTerminal(p) || wasUnschedulable(p) {
		return
	}
	took := now.Sub(p.CreationTimestamp.Time)
	m.podStartTotal.Observe(took.Seconds())
	if !isStateful(p) {
		m.podStartSLI.Observe(max(took-s.pulled-initTime(p, f), 0).Seconds())
	}
}

// PullBegan notes that an image for a Pod is being pulled. Each successful pull ends with Pulled.
func (m *Metrics) PullBegan(uid types.UID, now time.Time) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.starts[uid]; s != nil && !s.done {
		s.pulling = append(s.pulling, now)
	}
}

// Pulled records a pull that has succeeded: its duration, by the size of the image in bytes, and for the start of the Pod the
// time since the oldest of its pulls began. Pulls that overlap count once.
func (m *Metrics) Pulled(uid types.UID, size uint64, took time.Duration, now time.Time) {
	if m == nil {
		return
	}
	m.pulls.WithLabelValues(sizeLabel(size)).Observe(took.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.starts[uid]
	if s == nil || len(s.pulling) == 0 {
		return
	}
	began := s.pulling[0]
	s.pulling = s.pulling[1:]
	if began.Before(s.counted) {
		began = s.counted
	}
	s.pulled += now.Sub(began)
	s.counted = now
}

// ForgetPod drops what is known of the start of a Pod that is gone.
func (m *Metrics) ForgetPod(uid types.UID) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.starts, uid)
}

func isTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// haveContainersStarted reports whether the status shows every regular container as running.
func haveContainersStarted(p *corev1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		if r := p.Status.ContainerStatuses[i].State.Running; r == nil || r.StartedAt.IsZero() {
			return false
		}
	}
	return len(p.Status.ContainerStatuses) > 0
}

// wasUnschedulable reports whether the scheduler could not place a Pod at once.
func wasUnschedulable(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return true
		}
	}
	return false
}

// isStateful reports whether a Pod has a volume that outlives it or belongs to the node. Its start depends on storage, so it is
// not part of the service level indicator.
func isStateful(p *corev1.Pod) bool {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil {
			return true
		}
	}
	return false
}

// sizeLabel returns the class of an image by its size in bytes.
func sizeLabel(size uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	if size == 0 {
		return "N/A"
	}
	for _, class := range []struct {
		above uint64
		label string
	}{
		{100 * gb, "GT100GB"}, {60 * gb, "60GB-100GB"}, {40 * gb, "40GB-60GB"}, {30 * gb, "30GB-40GB"}, {20 * gb, "20GB-30GB"},
		{10 * gb, "10GB-20GB"}, {5 * gb, "5GB-10GB"}, {gb, "1GB-5GB"}, {500 * mb, "500MB-1GB"}, {100 * mb, "100MB-500MB"},
		{10 * mb, "10MB-100MB"},
	} {
		if size > class.above {
			return class.label
		}
	}
	return "0-10MB"
}
