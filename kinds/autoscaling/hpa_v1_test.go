package autoscaling

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// FuzzCarriers checks that what annotations carry can be read again, whatever a client wrote into them.
func FuzzCarriers(f *testing.F) {
	f.Add(`[{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"5"}}]`, `{"ScaleUp":{"Policies":[]}}`, "[]", "[]")
	f.Add(`[{"type":"Object","object":{"averageValue":"1"}}]`, "null", `[{"type":"Resource","resource":{"name":"cpu"}}]`, `[{"type":"A"}]`)
	f.Fuzz(func(t *testing.T, metrics, behavior, current, conditions string) {
		in := &autoscalingv1.HorizontalPodAutoscaler{}
		in.Annotations = map[string]string{
			carriedMetrics: metrics, carriedBehavior: behavior, carriedCurrent: current, carriedConditions: conditions,
		}
		hub := toHub(in)
		validateHPA(hub, nil)
		if again := toHub(fromHub(hub)); !equality.Semantic.DeepEqual(again.Spec.Metrics, hub.Spec.Metrics) && len(hub.Spec.Metrics) == 1 {
			t.Errorf("metrics %+v became %+v", hub.Spec.Metrics, again.Spec.Metrics)
		}
	})
}
