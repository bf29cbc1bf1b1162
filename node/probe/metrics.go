package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/nativehistogram"
)

// metrics are the metrics of probes, with the names of kubelets.
type metrics struct {
	reg    *prometheus.Registry
	total  *prometheus.CounterVec
	length *prometheus.HistogramVec
}

func newMetrics() *metrics {
	n := &metrics{
		reg: prometheus.NewRegistry(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prober_probe_total", Help: "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		length: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "prober_probe_duration_seconds", Help: "[ALPHA] Duration in seconds for a probe response.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	n.reg.MustRegister(n.total, n.length)
	return n
}

// Metrics returns the metrics of the probes of this node.
func (b *Prober) Metrics() prometheus.Gatherer { return b.metrics.reg }

// count records a result. The duration of a failed probe is not recorded, because it may have been cut off.
func (n *metrics) count(p *corev1.Pod, container, probe, result string, took time.Duration) {
	n.total.WithLabelValues(probe, result, container, p.Name, p.Namespace, string(p.UID)).Inc()
	if result != "failed" {
		n.length.WithLabelValues(probe, container, p.Name, p.Namespace).Observe(took.Seconds())
	}
}

// forget deletes the metrics of a Pod, so that they do not grow without end.
func (n *metrics) forget(p *corev1.Pod) {
	n.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
	n.length.DeletePartialMatch(prometheus.Labels{"pod": p.Name, "namespace": p.Namespace})
}
