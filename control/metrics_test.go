package control

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestElectionMetrics(t *testing.T) {
	m := NewMetrics()
	m.AddElection(&Leadership{Lease: "kube-scheduler", leads: true})
	m.AddElection(&Leadership{Lease: "kube-controller-manager"})
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	for _, want := range []string{
		`leader_election_master_status{name="kube-scheduler"} 1`, `leader_election_master_status{name="kube-controller-manager"} 0`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, w.Body.String())
		}
	}
}
