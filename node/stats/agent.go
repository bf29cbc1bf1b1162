package stats

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"proa.dev/node/fact"
)

// Agent are the numbers of the agent itself, and how much it has to do.
func (s *Stats) Agent() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), tasks{s.Node, s.Pods})
	return reg
}

// tasks counts Pods and containers.
type tasks struct {
	node string
	pods Pods
}

func taskMetrics() (name, pods, containers *prometheus.Desc) {
	return describe("kubelet_node_name", "[ALPHA] The node's name. The count is always 1.", "node"),
		describe("kubelet_running_pods", "[BETA] Number of pods that have a running pod sandbox"),
		describe("kubelet_running_containers", "[BETA] Number of containers currently running", "container_state")
}

// Describe tells what there may be.
func (t tasks) Describe(ch chan<- *prometheus.Desc) {
	name, pods, containers := taskMetrics()
	ch <- name
	ch <- pods
	ch <- containers
}

// Collect counts.
func (t tasks) Collect(ch chan<- prometheus.Metric) {
	running, states := 0, map[string]int{"running": 0}
	for _, l := range t.pods.Pods() {
		if l.Facts == nil {
			continue
		}
		if begun(l.Facts) {
			running++
		}
		for i := range l.Facts.Containers {
			states[stateOf(l.Facts.Containers[i].State)]++
		}
	}
	name, pods, containers := taskMetrics()
	ch <- prometheus.MustNewConstMetric(name, prometheus.GaugeValue, 1, t.node)
	ch <- prometheus.MustNewConstMetric(pods, prometheus.GaugeValue, float64(running))
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(containers, prometheus.GaugeValue, float64(n), state)
	}
}

func stateOf(s fact.State) string {
	switch s {
	case fact.Created:
		return "created"
	case fact.Running:
		return "running"
	case fact.Exited:
		return "exited"
	case fact.Unknown:
	}
	return "unknown"
}
