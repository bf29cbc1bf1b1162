package stats

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Handlers returns the HTTP handlers of statistics and metrics, by path. agent are the metrics of the agent, nil for
// the default; probes those of probes, nil for none.
func (s *Stats) Handlers(agent, probes prometheus.Gatherer) map[string]http.Handler {
	if agent == nil {
		agent = s.Agent()
	}
	out := map[string]http.Handler{
		"/stats/summary":    http.HandlerFunc(s.serveSummary),
		"/metrics/resource": s.metricsHandler(resourceMetrics(), Quick, (*Stats).resource),
		"/metrics/cadvisor": s.metricsHandler(containerMetrics(), Whole, (*Stats).containers),
	}
	if probes == nil {
		probes = prometheus.NewRegistry()
	}
	out["/metrics"], out["/metrics/probes"] = s.agentHandler(agent), promhttp.HandlerFor(probes, promhttp.HandlerOpts{})
	return out
}

// agentHandler returns a handler that serves the metrics of the agent, and how full the volumes of claims are.
func (s *Stats) agentHandler(agent prometheus.Gatherer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reg := prometheus.NewRegistry()
		reg.MustRegister(&exporter{claimMetrics(), func(x *export) { s.claims(r.Context(), x) }})
		promhttp.HandlerFor(prometheus.Gatherers{agent, reg}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}

func (s *Stats) serveSummary(w http.ResponseWriter, r *http.Request) {
	depth := Whole
	if v := r.URL.Query()["only_cpu_and_memory"]; len(v) > 0 && v[0] != "false" && v[0] != "0" {
		depth = Quick
	}
	sum, err := s.Summary(r.Context(), depth)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	_ = enc.Encode(sum) // an error means that the client has disconnected
}

// exporter makes metrics from a summary.
type exporter struct {
	descs map[string]*prometheus.Desc
	write func(*export)
}

// metricsHandler returns a handler that serves metrics made from a summary.
func (s *Stats) metricsHandler(descs map[string]*prometheus.Desc, depth Depth, of func(*Stats, *measurement, *export)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := s.measure(r.Context(), depth)
		reg := prometheus.NewRegistry()
		reg.MustRegister(&exporter{descs, func(x *export) {
			failed := 0.0
			if err != nil {
				failed = 1
			} else {
				of(s, m, x)
			}
			for _, name := range []string{"scrape_error", "resource_scrape_error"} {
				x.gauge(name, &failed)
			}
		}})
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
	})
}

// Describe implements prometheus.Collector.
func (e *exporter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range e.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (e *exporter) Collect(ch chan<- prometheus.Metric) { e.write(&export{ch: ch, descs: e.descs}) }

// export writes single metrics.
type export struct {
	ch    chan<- prometheus.Metric
	descs map[string]*prometheus.Desc
}

func (x *export) put(kind prometheus.ValueType, name string, at metav1.Time, value float64, labels []string) {
	d := x.descs[name]
	if d == nil {
		return
	}
	m := prometheus.MustNewConstMetric(d, kind, value, labels...)
	if !at.IsZero() {
		m = prometheus.NewMetricWithTimestamp(at.Time, m)
	}
	x.ch <- m
}

func (x *export) gauge(name string, value *float64, labels ...string) {
	if value != nil {
		x.put(prometheus.GaugeValue, name, metav1.Time{}, *value, labels)
	}
}

func (x *export) bytes(name string, at metav1.Time, value *uint64, labels ...string) {
	if value != nil {
		x.put(prometheus.GaugeValue, name, at, float64(*value), labels)
	}
}

func (x *export) counter(name string, at metav1.Time, value *uint64, labels ...string) {
	if value != nil {
		x.put(prometheus.CounterValue, name, at, float64(*value), labels)
	}
}

func (x *export) seconds(name string, at metav1.Time, nanos *uint64, labels ...string) {
	if nanos != nil {
		x.put(prometheus.CounterValue, name, at, float64(*nanos)/float64(time.Second), labels)
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func resourceMetrics() map[string]*prometheus.Desc {
	of := func(who string) []string {
		switch who {
		case "container":
			return []string{"container", "pod", "namespace"}
		case "pod":
			return []string{"pod", "namespace"}
		}
		return nil
	}
	out := map[string]*prometheus.Desc{
		"scrape_error":          describe("scrape_error", "[ALPHA] (Deprecated since 1.29.0) 1 if there was an error while getting container metrics, 0 otherwise"),
		"resource_scrape_error": describe("resource_scrape_error", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise"),
		"container_start_time_seconds": describe("container_start_time_seconds",
			"[STABLE] Start time of the container since unix epoch in seconds", of("container")...),
		"container_swap_limit_bytes": describe("container_swap_limit_bytes", "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", of("container")...),
	}
	for who, swap := range map[string]string{"node": "Current swap usage of the node", "pod": "Current amount of the pod swap usage",
		"container": "Current amount of the container swap usage"} {
		for name, help := range map[string]string{
			"_cpu_usage_seconds_total":  "[STABLE] Cumulative cpu time consumed by the " + who + " in core-seconds",
			"_memory_working_set_bytes": "[STABLE] Current working set of the " + who + " in bytes",
			"_swap_usage_bytes":         "[ALPHA] " + swap + " in bytes. Reported only on non-windows systems",
		} {
			out[who+name] = describe(who+name, help, of(who)...)
		}
	}
	return out
}

// usage writes the CPU, memory and swap usage of a node, Pod or container.
func (x *export) usage(who string, cpu *summary.CPUStats, mem *summary.MemoryStats, swap *summary.SwapStats, labels ...string) {
	if cpu != nil {
		x.seconds(who+"_cpu_usage_seconds_total", cpu.Time, cpu.UsageCoreNanoSeconds, labels...)
	}
	if mem != nil {
		x.bytes(who+"_memory_working_set_bytes", mem.Time, mem.WorkingSetBytes, labels...)
	}
	if swap != nil {
		x.bytes(who+"_swap_usage_bytes", swap.Time, swap.SwapUsageBytes, labels...)
	}
}

// resource writes the metrics of /metrics/resource, which autoscalers use.
func (s *Stats) resource(sum *measurement, x *export) {
	x.usage("node", sum.Node.CPU, sum.Node.Memory, sum.Node.Swap)
	for i := range sum.Pods {
		p := &sum.Pods[i]
		for j := range p.Containers {
			c := &p.Containers[j]
			labels := []string{c.Name, p.PodRef.Name, p.PodRef.Namespace}
			if !c.StartTime.IsZero() {
				start := float64(c.StartTime.UnixNano()) / float64(time.Second)
				x.gauge("container_start_time_seconds", &start, labels...)
			}
			x.usage("container", c.CPU, c.Memory, c.Swap, labels...)
		}
		x.usage("pod", p.CPU, p.Memory, p.Swap, p.PodRef.Name, p.PodRef.Namespace)
	}
}
