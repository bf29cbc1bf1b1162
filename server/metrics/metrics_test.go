package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestNamesDashboardsKnow(t *testing.T) {
	m := New(Gauges{Objects: func() map[string]int { return map[string]int{"pods": 3} }, StoreSize: func() float64 { return 42 }, Version: "v1.37.1", Major: "1", Minor: "37"})
	m.Done(Request{Verb: "create", Version: "v1", Resource: "pods", Scope: "namespace", Code: 201, Took: time.Millisecond})
	m.Done(Request{Verb: "list", Version: "v1", Resource: "pods", Scope: "cluster", Code: 200, Bytes: 5000})
	ended := m.Watching(Request{Version: "v1", Resource: "pods", Scope: "cluster"})
	text := scrape(m)
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="namespace",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 1`,
		`apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 1`,
		`apiserver_storage_objects{resource="pods"} 3`,
		`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 42`,
		`kubernetes_build_info{git_version="v1.37.1",major="1",minor="37"} 1`,
		`process_resident_memory_bytes`, `go_goroutines`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
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
