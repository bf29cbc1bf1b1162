package machine

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// numbers are those of parts of a node that come and go: a part that ended begins anew, with new counters.
type numbers struct {
	mu    sync.Mutex // guards parts
	parts []prometheus.Collector
}

// add shows the numbers of a part until leave is called.
func (n *numbers) add(part []prometheus.Collector) (leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.parts = append(n.parts, part...)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.parts = slices.DeleteFunc(n.parts, func(c prometheus.Collector) bool { return slices.Contains(part, c) })
	}
}

// Describe promises nothing: what there is, changes.
func (n *numbers) Describe(chan<- *prometheus.Desc) {}

// Collect reads them all.
func (n *numbers) Collect(to chan<- prometheus.Metric) {
	n.mu.Lock()
	parts := slices.Clone(n.parts)
	n.mu.Unlock()
	for _, c := range parts {
		c.Collect(to)
	}
}
