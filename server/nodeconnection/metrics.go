package nodeconnection

import (
	"maps"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// dialCounts counts connections by how they were made.
type dialCounts struct{ direct, tunnel, failed atomic.Int64 }

// Describe implements prometheus.Collector.
func (a *Agents) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(a, to) }

// Collect returns which nodes have a tunnel, with how many connections, and how nodes and Pods were reached.
func (a *Agents) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	open := maps.Clone(a.tunnels)
	a.mu.Unlock()
	streams := prometheus.NewDesc("proa_node_tunnel_streams", "Connections through the tunnel of a node that has one open to this server.", []string{"node"}, nil)
	for node, t := range open {
		to <- prometheus.MustNewConstMetric(streams, prometheus.GaugeValue, float64(t.conn.InFlight()), node)
	}
	dials := prometheus.NewDesc("proa_node_dials_total", "Connections to nodes and their Pods by the way they took.", []string{"way"}, nil)
	for way, n := range map[string]int64{"direct": a.counts.direct.Load(), "tunnel": a.counts.tunnel.Load(),
		"failed": a.counts.failed.Load()} {
		to <- prometheus.MustNewConstMetric(dials, prometheus.CounterValue, float64(n), way)
	}
}
