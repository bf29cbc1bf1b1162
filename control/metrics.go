package control

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/client"
)

// Metrics are the numbers of the queues, under the names that dashboards for Kubernetes know.
type Metrics struct {
	adds, retries   *prometheus.CounterVec
	waited, worked  *prometheus.HistogramVec
	depth           *prometheus.Desc
	unfinished, top *prometheus.Desc

	dropped *prometheus.Desc

	mu     sync.Mutex // guards what follows
	queues map[*queue]string
	events map[*client.Recorder]string
	lost   map[string]uint64 // of recorders that have ended
}

// NewMetrics makes the numbers; Collectors registers them.
func NewMetrics() *Metrics {
	label := []string{"name"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12)}, label)
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("workqueue_"+name, help, label, nil)
	}
	return &Metrics{
		adds:       counter("adds_total", "Keys that were added."),
		retries:    counter("retries_total", "Keys that came back because of an error."),
		waited:     histogram("queue_duration_seconds", "How long a key waits before it is worked on."),
		worked:     histogram("work_duration_seconds", "How long the work on a key takes."),
		depth:      desc("depth", "Keys that wait."),
		unfinished: desc("unfinished_work_seconds", "How long the work under way has taken so far, all keys together."),
		top:        desc("longest_running_processor_seconds", "How long the longest work under way has taken so far."),
		dropped: prometheus.NewDesc("proa_events_dropped_total",
			"Events of a controller that were never written because too many waited.", label, nil),
		queues: map[*queue]string{}, events: map[*client.Recorder]string{}, lost: map[string]uint64{},
	}
}

// attach makes a queue show up until it is detached, and gives it its counters. Controllers may share a name. A nil Metrics
// has none.
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

// attachEvents counts what a recorder drops, until it is detached.
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
		m.lost[name] += r.Dropped()
	}
}

// Describe is for the registry.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.adds, m.retries, m.waited, m.worked} {
		c.Describe(ch)
	}
	ch <- m.depth
	ch <- m.unfinished
	ch <- m.top
	ch <- m.dropped
}

// Collect is for the registry.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.adds, m.retries, m.waited, m.worked} {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := maps.Clone(m.lost)
	for r, name := range m.events {
		lost[name] += r.Dropped()
	}
	for name, n := range lost {
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
		ch <- prometheus.MustNewConstMetric(m.top, prometheus.GaugeValue, l.longest.Seconds(), name)
	}
}

// load is the number of keys that wait, and how long those under way have taken together and at most.
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
