package aggregate

import "github.com/prometheus/client_golang/prometheus"

// Describe is for the registry of metrics.
func (a *Aggregator) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(a, to) }

// Collect tells which aggregated servers are not available, and how many requests wait for the answer of each.
func (a *Aggregator) Collect(to chan<- prometheus.Metric) {
	away := prometheus.NewDesc("aggregator_unavailable_apiservice", "Whether the server of an APIService is unavailable: 1 or 0.", []string{"name"}, nil)
	waiting := prometheus.NewDesc("proa_aggregator_requests_in_flight", "Requests that wait for the answer of an aggregated API server; watches and streams do not count.", []string{"name"}, nil)
	for _, b := range *a.backends.Load() {
		unavailable := 1.0
		if b.available {
			unavailable = 0
		}
		to <- prometheus.MustNewConstMetric(away, prometheus.GaugeValue, unavailable, b.name)
		to <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(b.passing.Load()), b.name)
	}
}
