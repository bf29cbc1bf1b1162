package volume_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestMetrics(t *testing.T) {
	w := startNode(t)
	p := w.Pod("web", `{containers: [{name: c, volumeMounts: [{name: missing, mountPath: /v}, {name: ok, mountPath: /ok}, {name: csi, mountPath: /csi}]}],
		volumes: [{name: missing, configMap: {name: later}}, {name: ok, emptyDir: {}}, {name: csi, csi: {driver: made-up.example}}]}`)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := w.Mount(ctx, p); err == nil {
		t.Error("a volume without contents is mounted")
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(w.metrics, w.Collector())
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	text := rec.Body.String()
	for _, want := range []string{
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/empty-dir"} 1`,
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="fail-unknown",volume_plugin="kubernetes.io/configmap"} `,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"} 1`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"} 1`,
		`volume_manager_total_volumes{plugin_name="kubernetes.io/configmap",state="desired_state_of_world"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "made-up") {
		t.Error("a driver that does not exist is a label")
	}
}
