// Package apimetrics holds the metrics of the API server, under upstream's names.
package apimetrics

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"proa.dev/internal/nativehistogram"
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
	// Terminated says that the server has refused the request to protect itself.
	Terminated bool
}

// Metrics is the registry of one server.
type Metrics struct {
	registry *prometheus.Registry
	total    *prometheus.CounterVec
	refused  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	long     *prometheus.GaugeVec
	events   *prometheus.CounterVec
	expiry   prometheus.Histogram

	mu    sync.RWMutex // mu guards known
	known map[Request]*series
}

// series are the metrics of requests with the same labels; those that such requests do not have are nil.
type series struct {
	total, refused       prometheus.Counter
	duration, sli, sizes prometheus.Observer
}

// Gauges are values that are read when metrics are scraped.
type Gauges struct {
	// Unreadable counts the stored objects that cannot be decoded, by resource.
	Unreadable func() map[string]int
	// Objects counts the stored objects by resource.
	Objects func() map[string]int
	// CacheLag returns how many seconds the cache of each resource is behind the writes of this server.
	CacheLag func() map[string]float64
	// StoreSize is the size of the store in bytes.
	StoreSize func() float64
	// InFlight returns how many reading and writing requests are being served, without watches.
	InFlight func() (reading, writing int64)
	// Memory returns how many bytes requests hold for responses, for bodies, and for decoding these.
	Memory func() (answers, bodies, decoding int64)
	// Version is the version of the API.
	Version, Major, Minor string
}

// New returns the metrics of a server.
func New(g Gauges) *Metrics {
	alike := []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	m := &Metrics{
		registry: prometheus.NewRegistry(), known: map[Request]*series{},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
		}, append(alike[:len(alike):len(alike)], "dry_run", "code")),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total", Help: "[ALPHA] Number of requests which apiserver terminated in self-defense.",
		}, append(alike[:len(alike):len(alike)], "code")),
		duration: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
			Buckets: latencies(),
		}, append(alike[:len(alike):len(alike)], "dry_run")),
		sli: nativehistogram.NewVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_sli_duration_seconds",
			Help:    "Response latency distribution in seconds for each verb, group, version, resource, subresource, scope and component.",
			Buckets: latencies(),
		}, alike),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Help: "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, alike),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component.",
		}, alike),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total", Help: "Number of events sent in watch clients",
		}, []string{"group", "version", "resource"}),
		expiry: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_client_certificate_expiration_seconds",
			Help: "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
			Buckets: []float64{
				0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000,
			},
		}),
	}
	m.registry.MustRegister(m.total, m.refused, m.duration, m.sli, m.sizes, m.long, m.events, m.expiry,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(g))
	m.registerGauges(g)
	return m
}

// latencies returns the buckets of the histograms of requests, as upstream has them.
func latencies() []float64 {
	return []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
}

// registerGauges registers the values that are read when metrics are scraped.
func (m *Metrics) registerGauges(g Gauges) {
	if g.Objects != nil {
		m.registry.MustRegister(&byResource[int]{
			values: g.Objects,
			old: prometheus.NewDesc("apiserver_storage_objects", "Number of stored objects at the time of last check split by kind.",
				[]string{"resource"}, nil),
			desc: prometheus.NewDesc("apiserver_resource_objects", "Number of stored objects at the time of last check split by kind.",
				[]string{"group", "resource"}, nil),
		})
	}
	if g.Unreadable != nil {
		m.registry.MustRegister(&byResource[int]{
			values: g.Unreadable,
			desc: prometheus.NewDesc("proa_unreadable_objects", "Number of stored objects that cannot be decrypted or decoded.",
				[]string{"group", "resource"}, nil),
		})
	}
	if g.CacheLag != nil {
		m.registry.MustRegister(&byResource[float64]{
			values: g.CacheLag,
			desc: prometheus.NewDesc("proa_cache_lag_seconds", "How long the oldest write that the cache of a resource does not have has been waiting for it.",
				[]string{"group", "resource"}, nil),
		})
	}
	if g.StoreSize != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_storage_size_bytes", Help: "Size of the storage database file physically allocated in bytes.",
			ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"},
		}, g.StoreSize))
	}
	if g.InFlight != nil {
		inflight := func(kind string, of func() float64) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "apiserver_current_inflight_requests", Help: "Number of requests of this apiserver that are being served per request kind.",
				ConstLabels: prometheus.Labels{"request_kind": kind},
			}, of)
		}
		m.registry.MustRegister(
			inflight("readOnly", func() float64 { n, _ := g.InFlight(); return float64(n) }),
			inflight("mutating", func() float64 { _, n := g.InFlight(); return float64(n) }))
	}
	if g.Memory != nil {
		held := func(purpose string, of func() float64) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "proa_request_memory_bytes", Help: "Memory that requests hold, by purpose, as it counts toward --max-request-memory.",
				ConstLabels: prometheus.Labels{"purpose": purpose},
			}, of)
		}
		m.registry.MustRegister(
			held("answers", func() float64 { n, _, _ := g.Memory(); return float64(n) }),
			held("bodies", func() float64 { _, n, _ := g.Memory(); return float64(n) }),
			held("decoding", func() float64 { _, _, n := g.Memory(); return float64(n) }))
	}
}

func buildInfo(g Gauges) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "A metric with a constant '1' value labeled by major, minor and git version.",
		ConstLabels: prometheus.Labels{"major": g.Major, "minor": g.Minor, "git_version": g.Version},
	}, func() float64 { return 1 })
}

// verb returns the label for a verb: the API verb in capitals.
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
	n := m.seriesOf(r)
	n.total.Inc()
	if n.refused != nil {
		n.refused.Inc()
	}
	if n.duration != nil {
		n.duration.Observe(r.Took.Seconds())
		n.sli.Observe(r.Took.Seconds())
	}
	if n.sizes != nil {
		n.sizes.Observe(float64(r.Bytes))
	}
}

// seriesOf returns the series of requests with the labels of this one. There are as many as there are resources, verbs
// and codes.
func (m *Metrics) seriesOf(r Request) *series {
	r.Bytes, r.Took = 0, 0
	m.mu.RLock()
	n := m.known[r]
	m.mu.RUnlock()
	if n != nil {
		return n
	}
	v, dry := verb(r.Verb), ""
	if r.DryRun {
		dry = "All"
	}
	n = &series{total: m.total.WithLabelValues(v, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver", dry,
		strconv.Itoa(r.Code))}
	if r.Terminated {
		n.refused = m.refused.WithLabelValues(v, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver", strconv.Itoa(r.Code))
	}
	if v != "WATCH" {
		n.duration = m.duration.WithLabelValues(v, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver", dry)
		n.sli = m.sli.WithLabelValues(v, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver")
	}
	if v == "GET" || v == "LIST" {
		n.sizes = m.sizes.WithLabelValues(v, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[r] = n
	return n
}

// Watching counts an open watch. Call sent with the number of events that were sent, and ended when the watch ends.
func (m *Metrics) Watching(r Request) (sent func(events int), ended func()) {
	g := m.long.WithLabelValues("WATCH", r.Group, r.Version, r.Resource, r.Subresource, r.Scope, "apiserver")
	g.Inc()
	events := m.events.WithLabelValues(r.Group, r.Version, r.Resource)
	return func(n int) { events.Add(float64(n)) }, g.Dec
}

// Certificate records the remaining validity of a client certificate.
func (m *Metrics) Certificate(left time.Duration) { m.expiry.Observe(left.Seconds()) }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Registry returns the registry, to which other parts of the process add their metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// byResource reads a number for each resource when metrics are scraped. It publishes it under its name and, if it had one,
// under its former name.
type byResource[N int | float64] struct {
	values    func() map[string]N
	old, desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (b *byResource[N]) Describe(ch chan<- *prometheus.Desc) {
	if b.old != nil {
		ch <- b.old
	}
	ch <- b.desc
}

// Collect implements prometheus.Collector.
func (b *byResource[N]) Collect(ch chan<- prometheus.Metric) {
	for resource, n := range b.values() {
		plural, group, _ := strings.Cut(resource, ".")
		if b.old != nil {
			ch <- prometheus.MustNewConstMetric(b.old, prometheus.GaugeValue, float64(n), resource)
		}
		ch <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, float64(n), group, plural)
	}
}
