package control

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/nativehistogram"
)

// Metrics collects the metrics of the work queues, under the names that dashboards for Kubernetes know, and how many Events
// were dropped.
type Metrics struct {
	// Recorder keeps records of reconciles; nil for none. It is set before the first controller runs.
	Recorder *hop.Recorder

	adds, retries       *prometheus.CounterVec
	waited, worked      *prometheus.HistogramVec
	depth               *prometheus.Desc
	unfinished, longest *prometheus.Desc

	dropped, leader *prometheus.Desc

	mu            sync.Mutex // guards what follows
	queues        map[*queue]string
	elections     []*Leadership
	events        map[*client.Recorder]string
	droppedBefore map[string]uint64 // dropped Events of recorders that have ended, by controller name
}

// NewMetrics returns metrics without queues. It is a prometheus.Collector, to be registered once.
func NewMetrics() *Metrics {
	label := []string{"name"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return nativehistogram.NewVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12),
		}, label)
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("workqueue_"+name, help, label, nil)
	}
	return &Metrics{
		adds:    counter("adds_total", "[BETA] Total number of adds handled by workqueue"),
		retries: counter("retries_total", "[BETA] Total number of retries handled by workqueue"),
		waited:  histogram("queue_duration_seconds", "[BETA] How long in seconds an item stays in workqueue before being requested."),
		worked:  histogram("work_duration_seconds", "[BETA] How long in seconds processing an item from workqueue takes."),
		depth:   desc("depth", "[BETA] Current depth of workqueue"),
		unfinished: desc("unfinished_work_seconds", "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. "+
			"Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases."),
		longest: desc("longest_running_processor_seconds", "[BETA] How many seconds has the longest running processor for workqueue been running."),
		dropped: prometheus.NewDesc("proa_events_dropped_total",
			"Events of a controller that were never written because too many waited.", label, nil),
		leader: prometheus.NewDesc("leader_election_master_status", "[ALPHA] Gauge of if the reporting system is master of the relevant lease, "+
			"0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.", label, nil),
		queues: map[*queue]string{}, events: map[*client.Recorder]string{}, droppedBefore: map[string]uint64{},
	}
}

// attach includes a queue in the metrics until it is detached, and gives it its counters. Several controllers may share a
// name. It does nothing if m is nil.
func (m *Metrics) attach(name string, q *queue) (detach func()) {
	if m == nil {
		return func() {}
	}
	q.adds, q.retries = m.adds.WithLabelValues(name), m.retries.WithLabelValues(name)
	q.waited, q.worked = m.waited.WithLabelValues(name), m.worked.WithLabelValues(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[q] = name
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.queues, q)
	}
}

// recorder returns the recorder of reconciles; nil for none.
func (m *Metrics) recorder() *hop.Recorder {
	if m == nil {
		return nil
	}
	return m.Recorder
}

// AddElection includes whether this process leads in the metrics.
func (m *Metrics) AddElection(l *Leadership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.elections = append(m.elections, l)
}

// attachEvents includes the Events that a recorder drops in the metrics, until it is detached.
func (m *Metrics) attachEvents(name string, r *client.Recorder) (detach func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events[r] = name
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.events, r)
		m.droppedBefore[name] += r.Dropped()
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.adds, m.retries, m.waited, m.worked} {
		c.Describe(ch)
	}
	ch <- m.depth
	ch <- m.unfinished
	ch <- m.longest
	ch <- m.dropped
	ch <- m.leader
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.adds, m.retries, m.waited, m.worked} {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.elections {
		leads := 0.0
		if l.IsLeading() {
			leads = 1
		}
		ch <- prometheus.MustNewConstMetric(m.leader, prometheus.GaugeValue, leads, l.Lease)
	}
	dropped := maps.Clone(m.droppedBefore)
	for r, name := range m.events {
		dropped[name] += r.Dropped()
	}
	for name, n := range dropped {
		ch <- prometheus.MustNewConstMetric(m.dropped, prometheus.CounterValue, float64(n), name)
	}
	type load struct {
		depth        int
		all, longest time.Duration
	}
	loads := map[string]load{}
	now := time.Now()
	for q, name := range m.queues {
		depth, all, longest := q.load(now)
		have := loads[name]
		loads[name] = load{have.depth + depth, have.all + all, max(have.longest, longest)}
	}
	for name, l := range loads {
		ch <- prometheus.MustNewConstMetric(m.depth, prometheus.GaugeValue, float64(l.depth), name)
		ch <- prometheus.MustNewConstMetric(m.unfinished, prometheus.GaugeValue, l.all.Seconds(), name)
		ch <- prometheus.MustNewConstMetric(m.longest, prometheus.GaugeValue, l.longest.Seconds(), name)
	}
}

// load returns how many keys wait, and for how long the keys being reconciled have been so: all together, and the longest.
func (q *queue) load(now time.Time) (depth int, all, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, at := range q.since {
		if s := q.state[k]; s == running || s == rerun {
			all += now.Sub(at)
			longest = max(longest, now.Sub(at))
		}
	}
	return len(q.order), all, longest
}
