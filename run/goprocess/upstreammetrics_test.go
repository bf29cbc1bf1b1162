package goprocess

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
)

// TestUpstreamMetrics checks that UpstreamMetrics has the library's metrics of match conditions, under upstream's names, and no
// other metrics.
func TestUpstreamMetrics(t *testing.T) {
	admissionmetrics.Metrics.ObserveMatchConditionEvalError(t.Context(), "borrowed.example.com", "webhook", "validating", "CREATE")
	admissionmetrics.Metrics.ObserveMatchConditionEvaluationTime(t.Context(), time.Millisecond, "borrowed.example.com", "webhook",
		"validating", "CREATE")
	r := prometheus.NewRegistry()
	r.MustRegister(UpstreamMetrics())
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "apiserver_admission_match_condition_") {
			t.Errorf("%s is exported, too", f.GetName())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" && l.GetValue() == "borrowed.example.com" &&
					(m.GetCounter().GetValue() == 1 || m.GetHistogram().GetSampleCount() == 1) {
					found[f.GetName()] = true
				}
			}
		}
	}
	for name := range borrowedNames() {
		if !found[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
