package node

import (
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"proa.dev/node/nodestatus"
)

func TestCertificateMetrics(t *testing.T) {
	c := &nodestatus.Certificate{File: filepath.Join(t.TempDir(), "none.pem"), Log: slog.New(slog.DiscardHandler)}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(ClientCertificateMetrics(c)...)
	reg.MustRegister(buildInfo("v1.37.1+proa"))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	for _, want := range []string{
		"kubelet_certificate_manager_client_ttl_seconds +Inf", "kubelet_certificate_manager_client_expiration_renew_errors 0",
		`kubernetes_build_info{git_version="v1.37.1+proa",major="1",minor="37"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, w.Body.String())
		}
	}
}
