package httpproxy

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// Metrics are the metrics of a proxy, by the owners of its rules. Requests without a matching rule have no owner.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	codes    [600]string
}

// NewMetrics returns metrics for rules that are owned by objects of a kind, such as "ingress".
func NewMetrics(kind string) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "proa", Subsystem: kind, Name: "requests_total",
			Help: "Requests by the rule's owner and the code of the answer; 499 for clients that did not wait."}, []string{"namespace", kind, "code"}),
		seconds: nativehistogram.NewVec(prometheus.HistogramOpts{Namespace: "proa", Subsystem: kind, Name: "request_duration_seconds",
			Help:    "From the header of a request to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"namespace", kind}),
	}
	for i := range m.codes {
		m.codes[i] = strconv.Itoa(i)
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.requests.Describe(to)
	m.seconds.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.requests.Collect(to)
	m.seconds.Collect(to)
}

func (m *Metrics) observe(o Owner, code int, took time.Duration) {
	if code < 0 || code >= len(m.codes) {
		code = 0
	}
	m.requests.WithLabelValues(o.Namespace, o.Name, m.codes[code]).Inc()
	m.seconds.WithLabelValues(o.Namespace, o.Name).Observe(took.Seconds())
}

// forget removes the metrics of owners that have no rule any more.
func (m *Metrics) forget(old, now *Table) {
	kept := map[Owner]bool{}
	for _, w := range now.routes {
		kept[w.Owner] = true
	}
	for _, w := range old.routes {
		if !kept[w.Owner] {
			kept[w.Owner] = true
			m.seconds.DeleteLabelValues(w.Owner.Namespace, w.Owner.Name)
			for _, code := range m.codes {
				m.requests.DeleteLabelValues(w.Owner.Namespace, w.Owner.Name, code)
			}
		}
	}
}

// Forget removes the metrics of an owner that has no rule in any table. Users of SwapSections call it.
func (m *Metrics) Forget(o Owner) {
	m.seconds.DeleteLabelValues(o.Namespace, o.Name)
	for _, code := range m.codes {
		m.requests.DeleteLabelValues(o.Namespace, o.Name, code)
	}
}
