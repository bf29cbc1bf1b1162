package agentmetrics

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
)

func scrape(t *testing.T, m *Metrics, accept string) *httptest.ResponseRecorder {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return w
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestMetricNames checks the names and labels of the kubelet's metrics, which dashboards use.
func TestMetricNames(t *testing.T) {
	m := New()
	m.RuntimeOperation("start_container", 20*time.Millisecond, nil)
	m.RuntimeOperation("start_container", 20*time.Millisecond, errors.New("no"))
	m.StartPod()
	m.StartPodFailed()
	m.StartContainer(InitContainer)
	m.StartContainerFailed(Container, "ErrImagePull")
	m.ContainerTerminated(Container, 137, "OOMKilled")
	m.PodRuns(1500 * time.Millisecond)
	m.PodSynced(SyncCreate, time.Second)
	m.CgroupOperation(CgroupCreate, time.Millisecond)
	m.Evicted("memory.available")
	m.StorageOperation("kubernetes.io/csi:x", "volume_mount", time.Second, nil)
	wantLines(t, scrape(t, m, "").Body.String(),
		"# HELP kubelet_runtime_operations_total [ALPHA] Cumulative number of runtime operations by operation type.",
		`kubelet_runtime_operations_total{operation_type="start_container"} 2`,
		`kubelet_runtime_operations_errors_total{operation_type="start_container"} 1`,
		`kubelet_runtime_operations_duration_seconds_bucket{operation_type="start_container",le="0.03125"} 2`,
		"kubelet_started_pods_total 1", "kubelet_started_pods_errors_total 1",
		`kubelet_started_containers_total{container_type="init_container"} 1`,
		`kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"} 1`,
		`kubelet_terminated_containers_total{container_type="container",exit_code="137",reason="OOMKilled"} 1`,
		`kubelet_pod_start_duration_seconds_bucket{le="2"} 1`, `kubelet_pod_start_duration_seconds_bucket{le="1"} 0`,
		`kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1`,
		`kubelet_cgroup_manager_duration_seconds_count{operation_type="create"} 1`,
		`kubelet_evictions{eviction_signal="memory.available"} 1`,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:x"} 1`,
	)
}

// TestNilMetrics checks that all methods can be called on a nil *Metrics.
func TestNilMetrics(t *testing.T) {
	var m *Metrics
	m.RuntimeOperation("version", 0, nil)
	m.StartPod()
	m.StartPodFailed()
	m.StartContainer(Container)
	m.StartContainerFailed(Container, "")
	m.ContainerTerminated(Container, 0, "")
	m.PodRuns(0)
	m.PodSynced(SyncOther, 0)
	m.CgroupOperation(CgroupUpdate, 0)
	m.Evicted("")
	m.StorageOperation("", "", 0, nil)
	m.PodObserved(&corev1.Pod{}, nil, time.Time{})
	m.PullBegan("u", time.Time{})
	m.Pulled("u", 0, 0, time.Time{})
	m.ForgetPod("u")
	h := http.NotFoundHandler()
	w := httptest.NewRecorder()
	m.Instrument(h, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	if w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
}

// TestNativeHistogram checks that a scrape that accepts protobuf gets native buckets beside the classic ones.
func TestNativeHistogram(t *testing.T) {
	m := New()
	m.PodRuns(3 * time.Second)
	w := scrape(t, m, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/vnd.google.protobuf") {
		t.Fatal(got)
	}
	for r := bufio.NewReader(w.Body); ; {
		var f dto.MetricFamily
		if err := protodelim.UnmarshalFrom(r, &f); err != nil {
			t.Fatalf("no kubelet_pod_start_duration_seconds: %v", err)
		}
		if f.GetName() != "kubelet_pod_start_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if len(h.GetPositiveSpan()) != 1 || h.GetPositiveDelta()[0] != 1 || len(h.GetBucket()) != 25 || h.GetSampleCount() != 1 {
			t.Errorf("%v", h)
		}
		return
	}
}

func TestPodStartDuration(t *testing.T) {
	t0 := time.Unix(1000, 0)
	pod := func(uid types.UID, started bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, CreationTimestamp: metav1.NewTime(t0)}}
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		if uid == "stateful" {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
		}
		if started {
			p.Status.StartTime = new(metav1.NewTime(t0))
			running := &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: running}}}
		}
		return p
	}
	m := New()
	ran := &fact.Pod{Containers: []fact.Container{{Name: "i", State: fact.Exited, Started: t0, Finished: t0.Add(time.Second)}}}
	at := func(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }
	m.PodObserved(pod("u", false), nil, at(1))
	// Two pulls that overlap, from 2 to 6, and init containers that run for 1 second.
	m.PullBegan("u", at(2))
	m.PullBegan("u", at(3))
	m.Pulled("u", 50<<20, 3*time.Second, at(5))
	m.Pulled("u", 5, 3*time.Second, at(6))
	for range 2 {
		m.PodObserved(pod("u", true), ran, at(10))
	}
	m.PodObserved(pod("stateful", false), nil, at(1))
	m.PodObserved(pod("stateful", true), nil, at(20))
	late := pod("late", true)
	for range 2 {
		m.PodObserved(late, nil, at(30))
	}
	wantLines(t, scrape(t, m, "").Body.String(),
		"kubelet_pod_start_sli_duration_seconds_sum 5", "kubelet_pod_start_sli_duration_seconds_count 1",
		"kubelet_pod_start_total_duration_seconds_sum 30", "kubelet_pod_start_total_duration_seconds_count 2",
		`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="10MB-100MB"} 1`,
		`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"} 1`,
	)
	for _, uid := range []types.UID{"u", "stateful", "late"} {
		m.ForgetPod(uid)
	}
	if len(m.starts) != 0 {
		t.Errorf("%d Pods are left", len(m.starts))
	}
}

func TestInstrumentCountsRequests(t *testing.T) {
	m := New()
	h := m.Instrument(http.NotFoundHandler(), []string{"metrics/cadvisor", "exec"})
	for _, path := range []string{"/metrics/cadvisor", "/exec/ns/p/c", "/anything/" + strings.Repeat("x", 10)} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "BREW", "/coffee", nil))
	wantLines(t, scrape(t, m, "").Body.String(),
		`kubelet_http_requests_total{long_running="false",method="GET",path="metrics/cadvisor",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="true",method="GET",path="exec",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="other",path="other",server_type="readwrite"} 1`,
		`kubelet_http_requests_duration_seconds_count{long_running="true",method="GET",path="exec",server_type="readwrite"} 1`,
		`kubelet_http_inflight_requests{long_running="true",method="GET",path="exec",server_type="readwrite"} 0`,
	)
}
