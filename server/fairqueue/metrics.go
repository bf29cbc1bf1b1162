package fairqueue

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// Metrics are the metrics of a sharing, under upstream's names.
type Metrics struct {
	refusals, dispatched *prometheus.CounterVec
	waits, executions    *prometheus.HistogramVec

	inqueue, executing, seats, nominal, lower, upper *prometheus.Desc
	read                                             func() ([]*counters, map[string]bounds)
}

// counters counts the requests of a schema at one level.
type counters struct {
	schema, level           string
	running, seats, waiting atomic.Int64

	dispatched       prometheus.Counter
	waited, executed prometheus.Observer
}

func newMetrics() *Metrics {
	name := func(n string) string { return prometheus.BuildFQName("apiserver", "flowcontrol", n) }
	label := []string{"priority_level", "flow_schema"}
	with := func(more string) []string { return append(label[:2:2], more) }
	buckets := []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	desc := func(n, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc(name(n), help, labels, nil)
	}
	return &Metrics{
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("rejected_requests_total"), Help: "Number of requests rejected by API Priority and Fairness subsystem",
		}, with("reason")),
		dispatched: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("dispatched_requests_total"), Help: "Number of requests executed by API Priority and Fairness subsystem",
		}, label),
		waits: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: name("request_wait_duration_seconds"), Help: "Length of time a request spent waiting in its queue", Buckets: buckets,
		}, with("execute")),
		executions: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: name("request_execution_seconds"), Help: "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem", Buckets: buckets,
		}, with("type")),
		inqueue:   desc("current_inqueue_requests", "Number of requests currently pending in queues of the API Priority and Fairness subsystem", label),
		executing: desc("current_executing_requests", "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem", label),
		seats:     desc("current_executing_seats", "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem", label),
		nominal:   desc("nominal_limit_seats", "Nominal number of execution seats configured for each priority level", label[:1]),
		lower:     desc("lower_limit_seats", "Configured lower bound on number of execution seats available to each priority level", label[:1]),
		upper:     desc("upper_limit_seats", "Configured upper bound on number of execution seats available to each priority level", label[:1]),
	}
}

// countersFor returns the counters of a schema and its level.
func (m *Metrics) countersFor(schema, level string) *counters {
	return &counters{
		schema: schema, level: level, dispatched: m.dispatched.WithLabelValues(level, schema),
		waited: m.waits.WithLabelValues(level, schema, "true"), executed: m.executions.WithLabelValues(level, schema, "regular"),
	}
}

// forget deletes the series of a schema that no longer exists.
func (m *Metrics) forget(c *counters) {
	labels := prometheus.Labels{"priority_level": c.level, "flow_schema": c.schema}
	m.refusals.DeletePartialMatch(labels)
	m.dispatched.DeletePartialMatch(labels)
	m.waits.DeletePartialMatch(labels)
	m.executions.DeletePartialMatch(labels)
}

func (m *Metrics) rejected(c *counters, reason string, waited time.Duration) {
	m.refusals.WithLabelValues(c.level, c.schema, reason).Inc()
	m.waits.WithLabelValues(c.level, c.schema, "false").Observe(waited.Seconds())
}

func (c *counters) started(width int, waited time.Duration) {
	c.running.Add(1)
	c.seats.Add(int64(width))
	c.dispatched.Inc()
	c.waited.Observe(waited.Seconds())
}

func (c *counters) ended(width int, took time.Duration) {
	c.running.Add(-1)
	c.seats.Add(int64(-width))
	c.executed.Observe(took.Seconds())
}

// isIdle reports whether no request runs or waits.
func (c *counters) isIdle() bool { return c.running.Load() == 0 && c.waiting.Load() == 0 }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.refusals, m.dispatched, m.waits, m.executions} {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{m.inqueue, m.executing, m.seats, m.nominal, m.lower, m.upper} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.refusals, m.dispatched, m.waits, m.executions} {
		c.Collect(to)
	}
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	flows, levels := m.read()
	for _, c := range flows {
		gauge(m.inqueue, c.waiting.Load(), c.level, c.schema)
		gauge(m.executing, c.running.Load(), c.level, c.schema)
		gauge(m.seats, c.seats.Load(), c.level, c.schema)
	}
	for name, b := range levels {
		gauge(m.nominal, int64(b.nominal), name)
		gauge(m.lower, int64(b.lower), name)
		gauge(m.upper, int64(b.upper), name)
	}
}
