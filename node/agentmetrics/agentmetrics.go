// Package agentmetrics counts what the agent of a node does: calls of the container runtime, starts of Pods and containers,
// pulls, evictions, and requests to its API. The names, labels and buckets are those of the kubelet, so that its dashboards
// work. The parts of the agent call the methods of Metrics; all of them may be called on nil, and then do nothing.
package agentmetrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/nativehistogram"
)

// ContainerType is the value of the label container_type.
type ContainerType string

// The types of containers.
const (
	Container          ContainerType = "container"
	InitContainer      ContainerType = "init_container"
	EphemeralContainer ContainerType = "ephemeral_container"
)

// SyncType is what made the worker of a Pod reconcile.
type SyncType string

// The types of syncs.
const (
	SyncCreate SyncType = "create" // the first sync of a Pod
	SyncUpdate SyncType = "update" // the Pod has changed
	SyncOther  SyncType = "sync"   // something else has happened, such as the exit of a container
	SyncKill   SyncType = "kill"   // the Pod terminates
)

// CgroupOperation is an operation on the cgroup of a Pod.
type CgroupOperation string

// The operations on cgroups.
const (
	CgroupCreate  CgroupOperation = "create"
	CgroupUpdate  CgroupOperation = "update"
	CgroupDestroy CgroupOperation = "destroy"
)

// Metrics are the metrics of one agent. It is a prometheus.Collector.
type Metrics struct {
	operations, operationErrors *prometheus.CounterVec
	operationTimes              *prometheus.HistogramVec

	startedPods, startedPodErrors             prometheus.Counter
	startedContainers, startedContainerErrors *prometheus.CounterVec
	terminatedContainers                      *prometheus.CounterVec
	podStart                                  prometheus.Histogram
	podStartSLI, podStartTotal                prometheus.Histogram
	podSync, cgroups                          *prometheus.HistogramVec
	pulls                                     *prometheus.HistogramVec
	evictions                                 *prometheus.CounterVec
	storage                                   *prometheus.HistogramVec
	requests                                  *prometheus.CounterVec
	requestTimes                              *prometheus.HistogramVec
	inFlight                                  *prometheus.GaugeVec

	mu     sync.Mutex // guards what follows
	starts map[types.UID]*podStart
	calls  map[string]runtimeCalls
}

// runtimeCalls are the series of one operation of the runtime.
type runtimeCalls struct {
	total prometheus.Counter
	times prometheus.Observer
}

// New returns metrics that have counted nothing.
func New() *Metrics {
	operation, kind := []string{"operation_type"}, []string{"container_type"}
	request := []string{"method", "path", "server_type", "long_running"}
	startBuckets := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	pullBuckets := []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	storageBuckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	return &Metrics{
		operations: counters("kubelet_runtime_operations_total",
			"Cumulative number of runtime operations by operation type.", operation...),
		operationErrors: counters("kubelet_runtime_operations_errors_total",
			"Cumulative number of runtime operation errors by operation type.", operation...),
		operationTimes: histograms("kubelet_runtime_operations_duration_seconds",
			"Duration in seconds of runtime operations. Broken down by operation type.", prometheus.ExponentialBuckets(.005, 2.5, 14), operation...),
		startedPods:       counter("kubelet_started_pods_total", "Cumulative number of pods started"),
		startedPodErrors:  counter("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"),
		startedContainers: counters("kubelet_started_containers_total", "Cumulative number of containers started", kind...),
		startedContainerErrors: counters("kubelet_started_containers_errors_total",
			"Cumulative number of errors when starting containers", "container_type", "code"),
		terminatedContainers: counters("kubelet_terminated_containers_total",
			"Cumulative number of container terminations.", "container_type", "exit_code", "reason"),
		podStart: histogram("kubelet_pod_start_duration_seconds",
			"Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", startBuckets),
		podStartSLI: histogram("kubelet_pod_start_sli_duration_seconds",
			"Duration in seconds to start a pod, excluding time to pull images and run init containers, measured from pod creation timestamp to "+
				"when all its containers are reported as started and observed via watch", startBuckets),
		podStartTotal: histogram("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds to start a pod since creation, including time to pull images and run init containers, measured from pod creation "+
				"timestamp to when all its containers are reported as started and observed via watch", startBuckets),
		podSync: histograms("kubelet_pod_worker_duration_seconds",
			"Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
			prometheus.DefBuckets, operation...),
		cgroups: histograms("kubelet_cgroup_manager_duration_seconds",
			"Duration in seconds for cgroup manager operations. Broken down by method.", prometheus.DefBuckets, operation...),
		pulls: histograms("kubelet_image_pull_duration_seconds",
			"Duration in seconds to pull an image.", pullBuckets, "image_size_in_bytes"),
		evictions: counters("kubelet_evictions", "Cumulative number of pod evictions by eviction signal", "eviction_signal"),
		storage: histograms("storage_operation_duration_seconds", "Storage operation duration", storageBuckets,
			"volume_plugin", "operation_name", "status", "migrated"),
		requests: counters("kubelet_http_requests_total", "Number of the http requests received since the server started", request...),
		requestTimes: histograms("kubelet_http_requests_duration_seconds",
			"Duration in seconds to serve http requests", prometheus.DefBuckets, request...),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: alpha + "Number of the inflight http requests",
		}, request),
		starts: map[types.UID]*podStart{}, calls: map[string]runtimeCalls{},
	}
}

// alpha is how the help of a metric begins whose name may change in a later release of Kubernetes.
const alpha = "[ALPHA] "

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: alpha + help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: alpha + help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return nativehistogram.New(prometheus.HistogramOpts{Name: name, Help: alpha + help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return nativehistogram.NewVec(prometheus.HistogramOpts{Name: name, Help: alpha + help, Buckets: buckets}, labels)
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.operations, m.operationErrors, m.operationTimes, m.startedPods, m.startedPodErrors, m.startedContainers, m.startedContainerErrors,
		m.terminatedContainers, m.podStart, m.podStartSLI, m.podStartTotal, m.podSync, m.cgroups, m.pulls, m.evictions, m.storage,
		m.requests, m.requestTimes, m.inFlight,
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

// RuntimeOperation counts a call of the container runtime.
func (m *Metrics) RuntimeOperation(operation string, took time.Duration, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	c, known := m.calls[operation]
	if !known {
		c = runtimeCalls{total: m.operations.WithLabelValues(operation), times: m.operationTimes.WithLabelValues(operation)}
		m.calls[operation] = c
	}
	m.mu.Unlock()
	c.total.Inc()
	c.times.Observe(took.Seconds())
	if err != nil {
		m.operationErrors.WithLabelValues(operation).Inc()
	}
}

// StartPod counts an attempt to create the sandbox of a Pod.
func (m *Metrics) StartPod() {
	if m != nil {
		m.startedPods.Inc()
	}
}

// StartPodFailed counts an attempt to create a sandbox that has failed.
func (m *Metrics) StartPodFailed() {
	if m != nil {
		m.startedPodErrors.Inc()
	}
}

// StartContainer counts an attempt to start a container.
func (m *Metrics) StartContainer(t ContainerType) {
	if m != nil {
		m.startedContainers.WithLabelValues(string(t)).Inc()
	}
}

// StartContainerFailed counts an attempt to start a container that has failed. reason is that of the container's waiting state.
func (m *Metrics) StartContainerFailed(t ContainerType, reason string) {
	if m != nil {
		m.startedContainerErrors.WithLabelValues(string(t), reason).Inc()
	}
}

// ContainerTerminated counts a container that has ended.
func (m *Metrics) ContainerTerminated(t ContainerType, exitCode int32, reason string) {
	if m != nil {
		m.terminatedContainers.WithLabelValues(string(t), strconv.Itoa(int(exitCode)), reason).Inc()
	}
}

// PodRuns records how long it took from when the agent first saw a Pod until the Pod ran.
func (m *Metrics) PodRuns(took time.Duration) {
	if m != nil {
		m.podStart.Observe(took.Seconds())
	}
}

// PodSynced records how long a sync of a Pod took, including the work that it started.
func (m *Metrics) PodSynced(t SyncType, took time.Duration) {
	if m != nil {
		m.podSync.WithLabelValues(string(t)).Observe(took.Seconds())
	}
}

// CgroupOperation records how long an operation on a cgroup took.
func (m *Metrics) CgroupOperation(o CgroupOperation, took time.Duration) {
	if m != nil {
		m.cgroups.WithLabelValues(string(o)).Observe(took.Seconds())
	}
}

// Evicted counts the eviction of a Pod.
func (m *Metrics) Evicted(signal string) {
	if m != nil {
		m.evictions.WithLabelValues(signal).Inc()
	}
}

// StorageOperation records how long an operation on a volume took. plugin is the name of the volume plugin, operation such as
// volume_mount.
func (m *Metrics) StorageOperation(plugin, operation string, took time.Duration, err error) {
	if m == nil {
		return
	}
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.storage.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
}
