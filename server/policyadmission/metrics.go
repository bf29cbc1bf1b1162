package policyadmission

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// Metrics counts what policies decide, under upstream's names.
type Metrics struct {
	checks, mutations       *prometheus.CounterVec
	checkTime, mutationTime *prometheus.HistogramVec
}

// NewMetrics returns metrics that have counted nothing yet.
func NewMetrics() *Metrics {
	count := func(sort, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_" + sort + "_admission_policy_check_total", Help: help},
			labels)
	}
	duration := func(sort, help string, labels ...string) *prometheus.HistogramVec {
		return nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "apiserver_" + sort + "_admission_policy_check_duration_seconds", Help: help,
			Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1},
		}, labels)
	}
	return &Metrics{
		checks: count("validating", "Validation admission policy check total, labeled by policy and further identified by binding and "+
			"enforcement action taken.", "policy", "policy_binding", "error_type", "enforcement_action"),
		checkTime: duration("validating", "Validation admission latency for individual validation expressions in seconds, labeled by policy "+
			"and further including binding and enforcement action taken.", "policy", "policy_binding", "error_type", "enforcement_action"),
		mutations: count("mutating", "Mutation admission policy check total, labeled by policy and further identified by binding.",
			"policy", "policy_binding", "error_type"),
		mutationTime: duration("mutating", "Mutation admission latency for individual mutation expressions in seconds, labeled by policy "+
			"and binding.", "policy", "policy_binding", "error_type"),
	}
}

// Describe sends the descriptions of all metrics.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
}

// Collect sends all metrics.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.checks, m.checkTime, m.mutations, m.mutationTime}
}

// checked counts one decision of a ValidatingAdmissionPolicy, and the action that followed: allow, deny, audit or warn.
func (m *Metrics) checked(policy, binding, action string, d *decision) {
	labels := []string{policy, binding, errorType(d.message), action}
	m.checks.WithLabelValues(labels...).Inc()
	m.checkTime.WithLabelValues(labels...).Observe(d.elapsed.Seconds())
}

// mutated counts one mutation.
func (m *Metrics) mutated(policy, binding string, err error, elapsed time.Duration) {
	labels := []string{policy, binding, "no_error"}
	if err != nil {
		labels[2] = errorType(err.Error())
	}
	m.mutations.WithLabelValues(labels...).Inc()
	m.mutationTime.WithLabelValues(labels...).Observe(elapsed.Seconds())
}

// errorType returns the label for an error by its text. A denial is an error too.
func errorType(message string) string {
	switch {
	case strings.HasPrefix(message, "compilation"):
		return "compile_error"
	case strings.HasPrefix(message, "validation failed due to running out of cost budget"):
		return "out_of_budget"
	}
	return "invalid_error"
}
