package webhook

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// Metrics counts calls of webhooks, under upstream's names.
type Metrics struct {
	duration   *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	rejections *prometheus.CounterVec
	open       *prometheus.CounterVec
	exclusions *prometheus.CounterVec
}

// labels are the labels that all calls have.
type labels struct{ name, webhookType, operation string }

// Why a write was rejected.
const (
	noError       = "no_error"
	callingError  = "calling_webhook_error"
	internalError = "apiserver_internal_error"
)

// NewMetrics returns metrics that have counted nothing yet.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_admission_" + name, Help: help}, labels)
	}
	return &Metrics{
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_webhook_admission_duration_seconds",
			Help:    "Admission webhook latency histogram in seconds, identified by name and broken out for each operation and type (validating or admit).",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		requests:   counter("webhook_request_total", "Number of calls of admission webhooks by name, type, operation, code, and whether the request was rejected.", "name", "type", "operation", "code", "rejected"),
		rejections: counter("webhook_rejection_count", "Number of requests that admission webhooks rejected, by name, type, operation, sort of error and code.", "name", "type", "operation", "error_type", "rejection_code"),
		open:       counter("webhook_fail_open_count", "Number of failed calls of admission webhooks that were ignored, by name and type.", "name", "type"),
		exclusions: counter("match_condition_exclusions_total", "Number of requests that match conditions kept from a webhook, by name, kind, type and operation.", "name", "kind", "type", "operation"),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.requests, m.rejections, m.open, m.exclusions}
}

// called counts a call. Codes are limited to a range, so that webhooks cannot create any number of series.
func (m *Metrics) called(l labels, code int, rejected bool, took time.Duration) {
	text := strconv.FormatBool(rejected)
	m.requests.WithLabelValues(l.name, l.webhookType, l.operation, codeLabel(code), text).Inc()
	m.duration.WithLabelValues(l.name, l.webhookType, l.operation, text).Observe(took.Seconds())
}

func (m *Metrics) rejected(l labels, sort string, code int) {
	m.rejections.WithLabelValues(l.name, l.webhookType, l.operation, sort, codeLabel(code)).Inc()
}

func (m *Metrics) failedOpen(name, sort string) { m.open.WithLabelValues(name, sort).Inc() }

func (m *Metrics) excluded(l labels) {
	m.exclusions.WithLabelValues(l.name, "webhook", l.webhookType, l.operation).Inc()
}

func codeLabel(code int) string { return strconv.Itoa(min(max(code, 0), 600)) }
