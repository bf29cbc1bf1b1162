package run

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// borrowed shows metrics that libraries of Kubernetes count in a registry of their own, which all servers of a process share: those of match
// conditions of webhooks and policies. All others of that registry are none of this server's.
type borrowed struct{ from prometheus.Gatherer }

func borrow() borrowed { return borrowed{legacyregistry.DefaultGatherer} }

// borrowedNames are the metrics, under the names of upstream.
func borrowedNames() map[string]bool {
	return map[string]bool{
		"apiserver_admission_match_condition_evaluation_errors_total": true,
		"apiserver_admission_match_condition_evaluation_seconds":      true,
	}
}

// Describe names nothing beforehand: what there is depends on what was counted.
func (borrowed) Describe(chan<- *prometheus.Desc) {}

// Collect copies what was counted.
func (b borrowed) Collect(to chan<- prometheus.Metric) {
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

// copied is a metric as it was counted elsewhere.
type copied struct {
	desc *prometheus.Desc
	dto  *dto.Metric
}

// Desc names the metric.
func (c copied) Desc() *prometheus.Desc { return c.desc }

// Write copies its value.
func (c copied) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Histogram = c.dto.GetLabel(), c.dto.GetCounter(), c.dto.GetHistogram()
	return nil
}
