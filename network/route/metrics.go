package route

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the numbers of a proxy, by the owners of its rules. Requests that no rule is for have no owner.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	codes    [600]string
}

// NewMetrics makes the numbers of a proxy whose rules are owned by objects of a kind, "ingress" say.
func NewMetrics(kind string) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "proa", Subsystem: kind, Name: "requests_total",
			Help: "Requests by the rule's owner and the code of the answer; 499 for clients that did not wait."}, []string{"namespace", kind, "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "proa", Subsystem: kind, Name: "request_duration_seconds",
			Help: "From the header of a request to the end of its answer.", Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"namespace", kind}),
	}
	for i := range m.codes {
		m.codes[i] = strconv.Itoa(i)
	}
	return m
}

// Describe and Collect make it a prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.requests.Describe(to)
	m.seconds.Describe(to)
}

// Collect gives the numbers.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.requests.Collect(to)
	m.seconds.Collect(to)
}

func (m *Metrics) note(o Owner, code int, took time.Duration) {
	if code < 0 || code >= len(m.codes) {
		code = 0
	}
	m.requests.WithLabelValues(o.Namespace, o.Name, m.codes[code]).Inc()
	m.seconds.WithLabelValues(o.Namespace, o.Name).Observe(took.Seconds())
}

// forget drops the numbers of owners that have no rule any more.
func (m *Metrics) forget(old, now *Table) {
	kept := map[Owner]bool{}
	for _, w := range now.ways {
		kept[w.Owner] = true
	}
	for _, w := range old.ways {
		if !kept[w.Owner] {
			kept[w.Owner] = true
			m.seconds.DeleteLabelValues(w.Owner.Namespace, w.Owner.Name)
			for _, code := range m.codes {
				m.requests.DeleteLabelValues(w.Owner.Namespace, w.Owner.Name, code)
			}
		}
	}
}

// Forget drops the numbers of an owner whose rules are in no table any more. Who uses SwapSections calls it.
func (m *Metrics) Forget(o Owner) {
	m.seconds.DeleteLabelValues(o.Namespace, o.Name)
	for _, code := range m.codes {
		m.requests.DeleteLabelValues(o.Namespace, o.Name, code)
	}
}
