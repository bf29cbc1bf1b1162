package networkpolicy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/internal/nativehistogram"
)

// metrics are the metrics of a Guard.
type metrics struct {
	sync     prometheus.Histogram
	failures prometheus.Counter
	pods     prometheus.Collector
	policies prometheus.Collector
}

func (g *Guard) newMetrics() metrics {
	const space = "proa_network_policy"
	count := func(of func(*model) int) func() float64 {
		return func() float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			return float64(of(g.facts.model))
		}
	}
	return metrics{
		sync: nativehistogram.New(prometheus.HistogramOpts{Namespace: space, Name: "sync_duration_seconds",
			Help: "How long one transaction of network policies takes.", Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18)}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Namespace: space, Name: "sync_failures_total",
			Help: "Transactions of network policies that failed."}),
		pods: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: space, Name: "isolated_addresses",
			Help: "Addresses of this node's Pods that policies isolate."}, count(func(w *model) int { return len(w.itself.elements) })),
		policies: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: space, Name: "policies_in_force",
			Help: "Network policies that select Pods of this node."}, count((*model).policyCount)),
	}
}

// Collectors returns the metrics of the guard.
func (g *Guard) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.metrics.sync, g.metrics.failures, g.metrics.pods, g.metrics.policies}
}

// observe records the duration and outcome of a transaction.
func (m metrics) observe(start time.Time, err error) {
	m.sync.Observe(time.Since(start).Seconds())
	if err != nil {
		m.failures.Inc()
	}
}
