package goprocess

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// upstreamMetrics collects those metrics that Kubernetes libraries count in a global registry and that belong to this
// server: of match conditions of webhooks and policies.
type upstreamMetrics struct{ from prometheus.Gatherer }

// UpstreamMetrics returns the collector of metrics of Kubernetes libraries.
func UpstreamMetrics() upstreamMetrics { return upstreamMetrics{legacyregistry.DefaultGatherer} }

// borrowedNames has the names of the metrics.
func borrowedNames() map[string]bool {
	return map[string]bool{
		"apiserver_admission_match_condition_evaluation_errors_total": true,
		"apiserver_admission_match_condition_evaluation_seconds":      true,
	}
}

// Describe describes nothing, because which metrics exist depends on what was counted.
func (upstreamMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect copies the metrics.
func (b upstreamMetrics) Collect(to chan<- prometheus.Metric) {
	families, err := b.from.Gather()
	if err != nil && families == nil {
		return
	}
	names := borrowedNames()
	for _, f := range families {
		if !names[f.GetName()] {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := prometheus.Labels{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			to <- copied{prometheus.NewDesc(f.GetName(), f.GetHelp(), nil, labels), m}
		}
	}
}

// copied is a metric of another registry.
type copied struct {
	desc *prometheus.Desc
	dto  *dto.Metric
}

func (c copied) Desc() *prometheus.Desc { return c.desc }

// Write copies the value of the metric.
func (c copied) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Histogram = c.dto.GetLabel(), c.dto.GetCounter(), c.dto.GetHistogram()
	return nil
}
