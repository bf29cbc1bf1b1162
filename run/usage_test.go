package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/control/autoscale"
	"proa.dev/kinds/kind"
)

func TestMeasurements(t *testing.T) {
	use := func(name, cpu string) metricsv1beta1.ContainerMetrics {
		c := metricsv1beta1.ContainerMetrics{Name: name, Usage: corev1.ResourceList{}}
		if cpu != "" {
			c.Usage[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		return c
	}
	pod := func(name string, c ...metricsv1beta1.ContainerMetrics) kind.Object {
		return &metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Timestamp: metav1.Unix(9, 0), Window: metav1.Duration{Duration: time.Second}, Containers: c}
	}
	for _, test := range []struct {
		name      string
		container string
		pods      []kind.Object
		err       error
		want      string
	}{
		{"all containers", "", []kind.Object{pod("p", use("a", "100m"), use("b", "1"))}, nil, "map[p:1100]"},
		{"one container", "b", []kind.Object{pod("p", use("a", "100m"), use("b", "1"))}, nil, "map[p:1000]"},
		{"one that is not told", "", []kind.Object{pod("p", use("a", "100m"), use("b", "")), pod("q", use("a", "1"))}, nil, "map[q:1000]"},
		{"one that is not there", "x", []kind.Object{pod("p", use("a", "1"))}, nil, "failed to get container metrics: container x not present in metrics for pod ns/p"},
		{"nothing", "", nil, nil, "no metrics returned from resource metrics API"},
		{"refused", "", nil, errors.New("no"), "unable to fetch metrics from resource metrics API: no"},
	} {
		m := measured{Metrics: autoscale.Absent(), list: func(context.Context, autoscale.Query) ([]kind.Object, error) { return test.pods, test.err }}
		samples, err := m.Pods(t.Context(), autoscale.Query{Resource: corev1.ResourceCPU, Container: test.container})
		values := map[string]int64{}
		for name, s := range samples {
			values[name] = s.Value
		}
		got := fmt.Sprint(values)
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if _, err := (measured{Metrics: autoscale.Absent()}).Pods(t.Context(), autoscale.Query{Metric: "requests"}); err == nil {
		t.Error("a metric that nobody serves was measured")
	}
}
