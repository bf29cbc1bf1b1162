package remote_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
)

func TestMetrics(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	m := remote.NewMetrics()
	c := dial(t, remote.Config{URL: s.URL, Transport: http.DefaultTransport, Metrics: m})
	if _, err := c.Get(t.Context(), gr.Pods, "ns", "p", ""); err == nil {
		t.Error("there is a Pod")
	}
	host := strings.TrimPrefix(s.URL, "http://")
	s.Close()
	if _, err := c.Get(t.Context(), gr.Pods, "ns", "p", ""); err == nil {
		t.Error("there is a Pod without a server")
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	for _, want := range []string{
		`rest_client_requests_total{code="404",host="` + host + `",method="GET"} 1`,
		`rest_client_requests_total{code="<error>",host="` + host + `",method="GET"} 1`,
		`rest_client_request_duration_seconds_count{host="` + host + `",verb="GET"} 2`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, w.Body.String())
		}
	}
}
