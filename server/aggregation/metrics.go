package aggregation

import "github.com/prometheus/client_golang/prometheus"

// newFailures returns the counter of APIServices that have become unavailable.
func newFailures() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total",
		Help: "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
	}, []string{"name", "reason"})
}

// Describe implements prometheus.Collector.
func (a *Aggregator) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(a, to) }

// Collect returns which aggregated servers are not available, and how many requests wait for the response of each.
func (a *Aggregator) Collect(to chan<- prometheus.Metric) {
	a.failures.Collect(to)
	away := prometheus.NewDesc("aggregator_unavailable_apiservice",
		"[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.", []string{"name"}, nil)
	waiting := prometheus.NewDesc("proa_aggregator_requests_in_flight", "Requests that wait for the answer of an aggregated API server; watches and streams do not count.", []string{"name"}, nil)
	for _, b := range *a.backends.Load() {
		unavailable := 1.0
		if b.available {
			unavailable = 0
		}
		to <- prometheus.MustNewConstMetric(away, prometheus.GaugeValue, unavailable, b.name)
		to <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(b.inFlight.Load()), b.name)
	}
}
