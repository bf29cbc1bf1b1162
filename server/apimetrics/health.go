package apimetrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health counts the results of the health checks, for /metrics/slis.
type Health struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

// NewHealth returns a Health without results.
func NewHealth() *Health {
	h := &Health{
		registry: prometheus.NewRegistry(),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "This metric records the result of a single healthcheck.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "This metric records the results of all healthcheck.",
		}, []string{"name", "status", "type"}),
	}
	h.registry.MustRegister(h.last, h.total)
	return h
}

// Observe counts one check of an endpoint such as readyz.
func (h *Health) Observe(check, endpoint string, ok bool) {
	status, value := "error", 0.0
	if ok {
		status, value = "success", 1
	}
	h.last.WithLabelValues(check, endpoint).Set(value)
	h.total.WithLabelValues(check, status, endpoint).Inc()
}

// Handler serves the metrics.
func (h *Health) Handler() http.Handler {
	return promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{})
}
