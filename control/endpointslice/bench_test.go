package endpointslice

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkDecide decides about an unchanged Service with 5000 pods.
func BenchmarkDecide(b *testing.B) {
	w := newWorld()
	w.service = serviceOf(nil, []string{"ports=http:80:8080,metrics:90:9090"})
	w.nodes["n"] = nodeOf(nil, []string{"n"})
	for i := range 5000 {
		w.pods = append(w.pods, podOf(nil,
			[]string{fmt.Sprintf("p%04d", i), fmt.Sprintf("ip=10.1.%d.%d", i/250, i%250), "node=n", "ready=1"}))
	}
	w.decide()
	st := state{service: w.service, pods: w.pods, slices: w.slices, nodeNamed: func(name string) *corev1.Node { return w.nodes[name] }}
	b.ReportAllocs()
	for b.Loop() {
		if p := decide(st); !p.empty() {
			b.Fatal("something changed")
		}
	}
}
