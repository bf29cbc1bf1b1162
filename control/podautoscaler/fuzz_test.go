package podautoscaler

import (
	"encoding/json"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FuzzDecide decides about autoscalers that validation would reject: they must cause no panic, and never exceed the minimum or
// maximum.
func FuzzDecide(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"spec":{"behavior":{"scaleUp":{},"scaleDown":{}},"maxReplicas":5,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}`,
		`{"spec":{"behavior":{"scaleDown":{"policies":null},"scaleUp":null},"maxReplicas":5,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization"}}}]}}`,
		`{"spec":{"behavior":{},"maxReplicas":5,"metrics":[{"type":"External","external":{"metric":{"name":"q"},"target":{"averageValue":"0"}}}]}}`,
		`{"spec":{"behavior":{"scaleUp":{"selectPolicy":"","policies":[{}]},"scaleDown":{"stabilizationWindowSeconds":-1}},"minReplicas":-3,"maxReplicas":-5,"metrics":[{"type":"Object"},{"type":"Pods","pods":{"metric":{"name":"m","selector":{"matchExpressions":[{"key":"!"}]}}}}]}}`,
		`{"spec":{"maxReplicas":9,"metrics":[{"type":"Object","object":{"target":{"type":"Value","value":"0"}}},{"type":"ContainerResource","containerResource":{"name":"memory","container":"app","target":{"averageUtilization":0}}}]},"status":{"conditions":[{"type":"ScaledToZero","status":"True"}]}}`,
	} {
		f.Add([]byte(seed), int32(3))
	}
	f.Fuzz(func(t *testing.T, doc []byte, replicas int32) {
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		if json.Unmarshal(doc, h) != nil || replicas < 0 {
			return
		}
		o := &Options{}
		o.fill()
		facts := &decisionInput{
			hpa: h, now: now, options: o,
			scale: &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
				Status: autoscalingv1.ScaleStatus{Replicas: replicas, Selector: "a=b"}},
			pods: []*corev1.Pod{parsePod(t, []string{"a", "request=100m"}), parsePod(t, []string{"b", "request=100m", "phase=Pending"}),
				parsePod(t, []string{"c", "request=0"})},
		}
		for i := range h.Spec.Metrics {
			r := read(t.Context(), Absent(), "ns", labels.Everything(), &h.Spec.Metrics[i])
			if r.err != nil && i%2 == 0 {
				r = measurement{pods: map[string]Sample{"a": {Value: 90, At: now}}, values: []int64{7000}}
			}
			facts.measurements = append(facts.measurements, r)
		}
		p := decide(facts)
		if p.rescale {
			p.recordRescale(nil)
		}
		if minReplicas(h) >= 0 && minReplicas(h) <= h.Spec.MaxReplicas && p.rescale &&
			(p.to < min(minReplicas(h), replicas) || p.to > max(h.Spec.MaxReplicas, replicas)) {
			t.Errorf("from %d to %d, with bounds %d and %d", p.from, p.to, minReplicas(h), h.Spec.MaxReplicas)
		}
	})
}
