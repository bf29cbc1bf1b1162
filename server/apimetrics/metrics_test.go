package apimetrics

import (
	"bufio"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"proa.dev/hop"
	"proa.dev/internal/nativehistogram"
)

func TestMetricNamesOfUpstream(t *testing.T) {
	m := New(Gauges{Objects: func() map[string]int { return map[string]int{"pods": 3, "jobs.batch": 4} },
		StoreSize: func() float64 { return 42 },
		InFlight:  func() (int64, int64) { return 5, 6 }, Memory: func() (int64, int64, int64) { return 7, 8, 9 }, Version: "v1.37.1",
		Major: "1", Minor: "37"})
	m.Done(Request{Verb: "create", Version: "v1", Resource: "pods", Scope: "namespace", Code: 201, Took: time.Millisecond})
	m.Done(Request{Verb: "list", Version: "v1", Resource: "pods", Scope: "cluster", Code: 200, Bytes: 5000})
	m.Done(Request{Verb: "create", Version: "v1", Resource: "pods", Scope: "namespace", Code: 201, DryRun: true, Took: time.Minute})
	m.Done(Request{Verb: "watch", Version: "v1", Resource: "pods", Scope: "cluster", Code: 200, Took: time.Hour})
	m.Done(Request{Verb: "list", Version: "v1", Resource: "pods", Scope: "cluster", Code: 429, Terminated: true})
	m.Certificate(90 * time.Minute)
	sent, ended := m.Watching(Request{Version: "v1", Resource: "pods", Scope: "cluster"})
	sent(3)
	sent(4)
	text := scrape(m)
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 2`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 1`,
		`apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 1`,
		`apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="POST",version="v1",le="0.005"} 1`,
		`apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="pods",scope="namespace",subresource="",verb="POST",version="v1"} 2`,
		`apiserver_client_certificate_expiration_seconds_bucket{le="3600"} 0`,
		`apiserver_client_certificate_expiration_seconds_bucket{le="7200"} 1`,
		`apiserver_request_terminations_total{code="429",component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_watch_events_total{group="",resource="pods",version="v1"} 7`,
		`apiserver_current_inflight_requests{request_kind="mutating"} 6`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 5`,
		`proa_request_memory_bytes{purpose="answers"} 7`,
		`proa_request_memory_bytes{purpose="bodies"} 8`,
		`proa_request_memory_bytes{purpose="decoding"} 9`,
		`apiserver_resource_objects{group="batch",resource="jobs"} 4`,
		`apiserver_resource_objects{group="",resource="pods"} 3`,
		`apiserver_storage_objects{resource="pods"} 3`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 42`,
		`kubernetes_build_info{git_version="v1.37.1",major="1",minor="37"} 1`,
		`process_resident_memory_bytes`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
	}
	if strings.Contains(text, `duration_seconds_count{component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="WATCH"`) {
		t.Error("the length of a watch counts as a latency")
	}
	ended()
	if text := scrape(m); !strings.Contains(text, `verb="WATCH",version="v1"} 0`) {
		t.Error("an ended watch is still counted")
	}
}

func scrape(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestNativeHistogram checks that a scrape that asks for protobuf gets native buckets beside the classic ones.
func TestNativeHistogram(t *testing.T) {
	m := New(Gauges{})
	m.Done(Request{Verb: "create", Version: "v1", Resource: "pods", Scope: "namespace", Code: 201, Took: 7 * time.Millisecond})
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	r.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	m.Handler().ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "application/vnd.google.protobuf") {
		t.Fatal(got)
	}
	for in := bufio.NewReader(w.Body); ; {
		var f dto.MetricFamily
		if err := protodelim.UnmarshalFrom(in, &f); err != nil {
			t.Fatalf("no apiserver_request_duration_seconds: %v", err)
		}
		if f.GetName() != "apiserver_request_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if len(h.GetPositiveSpan()) != 1 || len(h.GetBucket()) != len(latencies()) || h.GetSampleCount() != 1 {
			t.Errorf("%v", h)
		}
		return
	}
}

// TestHops checks that the time at a hop is counted under the name of the hop, in classic and in native buckets.
func TestHops(t *testing.T) {
	m, r := New(Gauges{}), hop.NewRecorder(10)
	m.ObserveHops(nil)
	m.ObserveHops(r)
	for _, took := range []time.Duration{3 * time.Millisecond, 3 * time.Millisecond, time.Second} {
		rec := hop.Record{UID: "a", Verb: "update"}
		rec.Took[hop.Commit] = took
		r.Add(rec)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, want := range []string{`proa_hop_duration_seconds_sum{hop="commit"} 1.006`, `proa_hop_duration_seconds_bucket{hop="commit",le="0.01024"} 2`,
		`proa_hop_duration_seconds_bucket{hop="commit",le="0.00256"} 0`, `proa_hop_duration_seconds_bucket{hop="commit",le="+Inf"} 3`,
		`proa_hop_duration_seconds_count{hop="network"} 0`, `proa_hop_duration_seconds_count{hop="client"} 0`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is missing", want)
		}
	}
	// The same from a histogram of the Prometheus client.
	same := nativehistogram.New(prometheus.HistogramOpts{Name: "h"})
	for _, took := range []float64{0.003, 0.003, 1} {
		same.Observe(took)
	}
	var want, got dto.Metric
	if err := errors.Join(same.Write(&want), (&hopMetric{label: "commit", times: r.Durations(hop.Commit)}).Write(&got)); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*dto.Metric{&want, &got} {
		h.Histogram.Bucket, h.Histogram.CreatedTimestamp, h.Label = nil, nil, nil
	}
	if got.String() != want.String() {
		t.Errorf("got  %s\nwant %s", got.String(), want.String())
	}
}
