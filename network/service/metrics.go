package service

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/nativehistogram"
	"proa.dev/kinds/kind"
)

// metrics are the metrics of the proxy, under the names of kube-proxy.
type metrics struct {
	sync     prometheus.Histogram
	last     prometheus.Gauge
	failures prometheus.Counter
	latency  prometheus.Histogram
	// healthz and livez count the responses of the health endpoints, by status code.
	healthz, livez *prometheus.CounterVec
}

func newMetrics() metrics {
	const space = "kubeproxy"
	return metrics{
		healthz: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: space, Name: "proxy_healthz_total",
			Help: "Answers of /healthz."}, []string{"code"}),
		livez: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: space, Name: "proxy_livez_total", Help: "Answers of /livez."},
			[]string{"code"}),
		sync: nativehistogram.New(prometheus.HistogramOpts{Namespace: space, Name: "sync_proxy_rules_duration_seconds",
			Help: "How long one transaction takes, with what is decided for it.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18)}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: space, Name: "sync_proxy_rules_last_timestamp_seconds",
			Help: "When the rules were written last."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Name: "sync_proxy_rules_nftables_sync_failures_total",
			Help: "Transactions that failed."}),
		latency: nativehistogram.New(prometheus.HistogramOpts{Namespace: space, Name: "network_programming_duration_seconds",
			Help: "From the change of a Pod or Service to the rules that follow from it.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}),
	}
}

// Collectors returns the metrics of the proxy.
func (p *Proxy) Collectors() []prometheus.Collector {
	return []prometheus.Collector{p.metrics.sync, p.metrics.last, p.metrics.failures, p.metrics.latency, p.metrics.healthz, p.metrics.livez}
}

// observe records the duration of a transaction, and the latency of the changes that it wrote.
func (m metrics) observe(start time.Time, triggerTimes []time.Time, err error) {
	m.sync.Observe(time.Since(start).Seconds())
	if err != nil {
		m.failures.Inc()
		return
	}
	m.last.SetToCurrentTime()
	for _, c := range triggerTimes {
		m.latency.Observe(time.Since(c).Seconds())
	}
}

// triggerTime returns when the change happened that caused an update of an EndpointSlice, if the slice has a new annotation for it.
func triggerTime(now, old kind.Object) (time.Time, bool) {
	text := now.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]
	if text == "" || old != nil && old.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime] == text {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	return t, err == nil
}
