package dns

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// metrics are the metrics of a server.
type metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newMetrics() metrics {
	return metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proa_dns_requests_total", Help: "Questions that were answered, by where the answer came from and what it was.",
		}, []string{"from", "rcode"}),
		took: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "proa_dns_request_duration_seconds", Help: "How long an answer takes, by where it came from.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 4, 10),
		}, []string{"from"}),
	}
}

func (m metrics) observe(from string, rcode int, took time.Duration) {
	m.requests.WithLabelValues(from, rcodeName(rcode)).Inc()
	m.took.WithLabelValues(from).Observe(took.Seconds())
}

func (m metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.took}
}
