// Package metrics counts what the server does, under the names that dashboards for Kubernetes expect.
package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Request is a finished request as the metrics see it.
type Request struct {
	Verb, Group, Version, Resource, Subresource string
	// Scope is resource (one object), namespace, cluster or empty.
	Scope  string
	DryRun bool
	Code   int
	Bytes  int64
	Took   time.Duration
}

// Metrics is the registry of one server.
type Metrics struct {
	registry *prometheus.Registry
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	long     *prometheus.GaugeVec
	inflight *prometheus.GaugeVec
}

// Gauges are values that are read when metrics are scraped.
type Gauges struct {
	// Objects counts the stored objects by resource.
	Objects func() map[string]int
	// StoreSize is the size of the store in bytes.
	StoreSize func() float64
	// Version is the version of the API.
	Version, Major, Minor string
}

// New makes the metrics of a server.
func New(g Gauges) *Metrics {
	labels := []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
		}, append(labels[:len(labels):len(labels)], "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds",
			Help: "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
			Buckets: []float64{
				0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
			},
		}, labels),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component.",
		}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests",
			Help: "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
		}, []string{"request_kind"}),
	}
	m.registry.MustRegister(m.total, m.duration, m.sizes, m.long, m.inflight,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(g))
	if g.Objects != nil {
		m.registry.MustRegister(&objects{count: g.Objects, desc: prometheus.NewDesc("apiserver_storage_objects",
			"Number of stored objects at the time of last check split by kind.", []string{"resource"}, nil)})
	}
	if g.StoreSize != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_storage_size_bytes", Help: "Size of the storage database file physically allocated in bytes.",
			ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"},
		}, g.StoreSize))
	}
	return m
}

func buildInfo(g Gauges) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "A metric with a constant '1' value labeled by major, minor and git version.",
		ConstLabels: prometheus.Labels{"major": g.Major, "minor": g.Minor, "git_version": g.Version},
	}, func() float64 { return 1 })
}

// verb is how metrics call a request: the API verb in capitals.
func verb(v string) string {
	switch v {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	}
	return strings.ToUpper(v)
}

// Done counts a finished request.
func (m *Metrics) Done(r Request) {
	v, dry := verb(r.Verb), ""
	if r.DryRun {
		dry = "All"
	}
	m.total.WithLabelValues(v, dry, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver", strconv.Itoa(r.Code)).Inc()
	if v == "WATCH" {
		return
	}
	m.duration.WithLabelValues(v, dry, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver").Observe(r.Took.Seconds())
	if v == "GET" || v == "LIST" {
		m.sizes.WithLabelValues(v, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver").Observe(float64(r.Bytes))
	}
}

// Watching counts an open watch; call the result when it ends.
func (m *Metrics) Watching(r Request) (ended func()) {
	g := m.long.WithLabelValues("WATCH", r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver")
	g.Inc()
	return g.Dec
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Registry is where other parts of the process add their own.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// objects reads the number of objects when asked.
type objects struct {
	count func() map[string]int
	desc  *prometheus.Desc
}

// Describe names the metric.
func (o *objects) Describe(ch chan<- *prometheus.Desc) { ch <- o.desc }

// Collect reads it.
func (o *objects) Collect(ch chan<- prometheus.Metric) {
	for resource, n := range o.count() {
		ch <- prometheus.MustNewConstMetric(o.desc, prometheus.GaugeValue, float64(n), resource)
	}
}
