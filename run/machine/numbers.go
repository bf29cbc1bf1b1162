package machine

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// partMetrics collects the metrics of the parts of a node that come and go. A part that was restarted has new counters.
type partMetrics struct {
	mu    sync.Mutex // guards parts
	parts []prometheus.Collector
}

// add includes the metrics of a part until leave is called.
func (n *partMetrics) add(part []prometheus.Collector) (leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parts = append(n.parts, part...)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.parts = slices.DeleteFunc(n.parts, func(c prometheus.Collector) bool { return slices.Contains(part, c) })
	}
}

// Describe describes nothing, because the metrics change.
func (n *partMetrics) Describe(chan<- *prometheus.Desc) {}

func (n *partMetrics) Collect(to chan<- prometheus.Metric) {
	n.mu.Lock()
	parts := slices.Clone(n.parts)
	n.mu.Unlock()
	for _, c := range parts {
		c.Collect(to)
	}
}
