package remote

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// Metrics counts the requests of clients, with the names of client-go. It is a prometheus.Collector.
type Metrics struct {
	requests *prometheus.CounterVec
	times    *prometheus.HistogramVec
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "method", "host"}),
		times: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0},
		}, []string{"verb", "host"}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
	m.times.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.Collect(ch)
	m.times.Collect(ch)
}

// count counts a request to a host. resp is nil if there was no response. How long a watch waits for its first event says nothing
// about latency, so its duration is not recorded.
func (m *Metrics) count(host string, q *call, resp *http.Response, took time.Duration) {
	if m == nil {
		return
	}
	code := "<error>"
	if resp != nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	m.requests.WithLabelValues(code, q.method, host).Inc()
	if !q.stream {
		m.times.WithLabelValues(q.method, host).Observe(took.Seconds())
	}
}
