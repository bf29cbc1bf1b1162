package schedule

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/nativehistogram"
	"proa.dev/schedule/podqueue"
)

// Metrics are the metrics of a scheduler, with upstream's names.
type Metrics struct {
	attempts       *prometheus.CounterVec   // by result and profile
	durations      *prometheus.HistogramVec // by result and profile
	algorithm      prometheus.Histogram
	sli            *prometheus.HistogramVec // by attempts
	attemptsPerPod prometheus.Histogram
	flushed        prometheus.Counter
	Victims        prometheus.Histogram // victims of each preemption
	Preemption     prometheus.Counter   // attempts

	pendingPods, incoming, unschedulable, cacheSize *prometheus.Desc
	read                                            func() gauges
}

// NewMetrics returns the metrics of one scheduler.
func NewMetrics() *Metrics {
	name := func(n string) string { return prometheus.BuildFQName("scheduler", "", n) }
	histogram := func(n, help string, start float64, count int) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name(n), Help: help, Buckets: prometheus.ExponentialBuckets(start, 2, count)}
	}
	return &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("schedule_attempts_total"),
			Help: "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
		}, []string{"result", "profile"}),
		durations: nativehistogram.NewVec(histogram("scheduling_attempt_duration_seconds",
			"Scheduling attempt latency in seconds (scheduling algorithm + binding)", 0.001, 15), []string{"result", "profile"}),
		algorithm: nativehistogram.New(histogram("scheduling_algorithm_duration_seconds",
			"Scheduling algorithm latency in seconds", 0.001, 15)),
		sli: nativehistogram.NewVec(histogram("pod_scheduling_sli_duration_seconds",
			"E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.", 0.01, 20), []string{"attempts"}),
		attemptsPerPod: prometheus.NewHistogram(histogram("pod_scheduling_attempts", "Number of attempts to successfully schedule a pod.",
			1, 5)),
		flushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: name("pod_scheduled_after_flush_total"),
			Help: "Number of pods that were successfully scheduled after being flushed from unschedulablePods due to timeout.",
		}),
		Victims: prometheus.NewHistogram(histogram("preemption_victims", "Number of selected preemption victims", 1, 7)),
		Preemption: prometheus.NewCounter(prometheus.CounterOpts{Name: name("preemption_attempts_total"),
			Help: "Total preemption attempts in the cluster till now"}),
		pendingPods: prometheus.NewDesc(name("pending_pods"),
			"Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.",
			[]string{"queue"}, nil),
		incoming: prometheus.NewDesc(name("queue_incoming_pods_total"),
			"Number of pods added to scheduling queues by event and queue type.", []string{"queue", "event"}, nil),
		unschedulable: prometheus.NewDesc(name("unschedulable_pods"),
			"The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for all plugins that caused it to not schedule and so this metric have meaning only when broken down by plugin.",
			[]string{"plugin", "profile"}, nil),
		cacheSize: prometheus.NewDesc(name("cache_size"), "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.", []string{"type"}, nil),
	}
}

// gauges has the values that are computed when metrics are collected.
type gauges struct {
	pending       map[string]int // by part of the queue
	incoming      map[podqueue.Arrival]uint64
	unschedulable map[[2]string]int // by plugin and profile
	size          map[string]int    // by what
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.durations, m.algorithm, m.sli, m.attemptsPerPod, m.flushed, m.Victims, m.Preemption}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
	for _, d := range []*prometheus.Desc{m.pendingPods, m.incoming, m.unschedulable, m.cacheSize} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
	if m.read == nil {
		return
	}
	g := m.read()
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	for queue, n := range g.pending {
		gauge(m.pendingPods, n, queue)
	}
	for by, n := range g.unschedulable {
		gauge(m.unschedulable, n, by[0], by[1])
	}
	for what, n := range g.size {
		gauge(m.cacheSize, n, what)
	}
	for a, n := range g.incoming {
		to <- prometheus.MustNewConstMetric(m.incoming, prometheus.CounterValue, float64(n), a.Queue, a.Event)
	}
}

// scheduled counts a Pod that was bound.
func (m *Metrics) scheduled(t *attempt, now time.Time) {
	m.attempts.WithLabelValues("scheduled", t.profile.Name).Inc()
	m.durations.WithLabelValues("scheduled", t.profile.Name).Observe(now.Sub(t.start).Seconds())
	m.attemptsPerPod.Observe(float64(t.Attempts))
	label := "15+"
	if t.Attempts < 15 {
		label = strconv.Itoa(t.Attempts)
	}
	m.sli.WithLabelValues(label).Observe(now.Sub(t.FirstAttempt).Seconds())
	if t.Flushed {
		m.flushed.Inc()
	}
}

// failed counts a failed attempt.
func (m *Metrics) failed(t *attempt, reason string, now time.Time) {
	result := "unschedulable"
	if reason == corev1.PodReasonSchedulerError {
		result = "error"
	}
	m.attempts.WithLabelValues(result, t.profile.Name).Inc()
	m.durations.WithLabelValues(result, t.profile.Name).Observe(now.Sub(t.start).Seconds())
}
