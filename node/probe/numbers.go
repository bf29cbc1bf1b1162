package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// numbers count the answers of probes, under the names that dashboards know.
type numbers struct {
	reg    *prometheus.Registry
	total  *prometheus.CounterVec
	length *prometheus.HistogramVec
}

func newNumbers() *numbers {
	n := &numbers{
		reg: prometheus.NewRegistry(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		length: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "[ALPHA] Duration in seconds for a probe response.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	n.reg.MustRegister(n.total, n.length)
	return n
}

// Numbers are what the probes of this node came to.
func (b *Prober) Numbers() prometheus.Gatherer { return b.numbers.reg }

// count notes an answer. How long a failed probe took says nothing: it may have been cut off.
func (n *numbers) count(p *corev1.Pod, container, probe, result string, took time.Duration) {
	n.total.WithLabelValues(probe, result, container, p.Name, p.Namespace, string(p.UID)).Inc()
	if result != "failed" {
		n.length.WithLabelValues(probe, container, p.Name, p.Namespace).Observe(took.Seconds())
	}
}

// forget drops the numbers of a Pod, so that they do not grow without end.
func (n *numbers) forget(p *corev1.Pod) {
	n.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
	n.length.DeletePartialMatch(prometheus.Labels{"pod": p.Name, "namespace": p.Namespace})
}
