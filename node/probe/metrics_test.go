package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// metricsText returns the metrics of a prober, one in a line.
func metricsText(t *testing.T, b *Prober) string {
	t.Helper()
	families, err := b.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s %s %v", f.GetName(), strings.Join(labels, ","),
				m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount())))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{ReadinessProbe: execProbe("ready", func(p *corev1.Probe) { p.FailureThreshold = 3 })})
		s.sync()
		time.Sleep(11 * time.Second)
		s.setResult("ready", "bad")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		labels := fmt.Sprintf("container=c,namespace=%s,pod=%s", s.pod.Namespace, s.pod.Name)
		want(t, metricsText(t, s.prober), fmt.Sprintf(`
prober_probe_duration_seconds %[1]s,probe_type=Readiness 2
prober_probe_total %[1]s,pod_uid=u,probe_type=Readiness,result=failed 1
prober_probe_total %[1]s,pod_uid=u,probe_type=Readiness,result=successful 2`, labels))
		s.prober.Forget("u")
		want(t, metricsText(t, s.prober), "")
	})
}
