package connlimit

import "github.com/prometheus/client_golang/prometheus"

// countKey names a series of metrics.
type countKey struct {
	listener string
	class    Class
}

// count is how many connections of a listener are open, and how many were closed to make room.
type count struct{ open, closed int }

// count returns the counters of a listener and a class. The lock is held.
func (b *Budget) count(listener string, class Class) *count {
	k := countKey{listener, class}
	c := b.counts[k]
	if c == nil {
		c = &count{}
		b.counts[k] = c
	}
	return c
}

type metrics struct {
	budget                       *Budget
	open, closed, limit, streams *prometheus.Desc
}

// Collector returns the metrics of the budget.
func (b *Budget) Collector() prometheus.Collector {
	return &metrics{
		budget: b,
		open:   prometheus.NewDesc("proa_connections", "Open connections of clients, by listener and state.", []string{"listener", "state"}, nil),
		closed: prometheus.NewDesc("proa_connections_closed_total",
			"Connections that were closed because the share of their state was full, by listener and state.", []string{"listener", "state"}, nil),
		limit: prometheus.NewDesc("proa_connections_limit", "How many connections the listeners of the process may hold together, by state.",
			[]string{"state"}, nil),
		streams: prometheus.NewDesc("proa_user_streams", "Connections that last and that the process has opened for users.", nil, nil),
	}
}

// Describe sends the descriptions.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.open, m.closed, m.limit, m.streams} {
		to <- d
	}
}

// Collect sends the values.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	b := m.budget
	b.mu.Lock()
	counts := make(map[countKey]count, len(b.counts))
	for k, c := range b.counts {
		counts[k] = *c
	}
	b.mu.Unlock()
	for k, c := range counts {
		to <- prometheus.MustNewConstMetric(m.open, prometheus.GaugeValue, float64(c.open), k.listener, k.class.String())
		to <- prometheus.MustNewConstMetric(m.closed, prometheus.CounterValue, float64(c.closed), k.listener, k.class.String())
	}
	for c, n := range b.limit {
		to <- prometheus.MustNewConstMetric(m.limit, prometheus.GaugeValue, float64(n), Class(c).String())
	}
	b.streams.mu.Lock()
	open := b.streams.open
	b.streams.mu.Unlock()
	to <- prometheus.MustNewConstMetric(m.streams, prometheus.GaugeValue, float64(open))
}
