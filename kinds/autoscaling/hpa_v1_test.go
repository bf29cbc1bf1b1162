package autoscaling

import (
	"sync"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzCarriers checks that what annotations carry can be read again, whatever a client wrote into them.
func FuzzCarriers(f *testing.F) {
	f.Add(`[{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"5"}}]`, `{"ScaleUp":{"Policies":[]}}`, "[]", "[]")
	f.Add(`[{"type":"Resource"},{"type":"Pods"},{"type":"Object"},{"type":"External"},{"type":"ContainerResource"}]`, "{}",
		`[{"type":"Resource"},{"type":"Pods"},{"type":"Object"},{"type":"External"},{"type":"ContainerResource"}]`, "null")
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

// TestSharedObjects converts one object in several goroutines, as watchers do: the race detector must find no write
// to it.
func TestSharedObjects(t *testing.T) {
	hub := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}}
	hub.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{} // v1 has it in an annotation
	spoke := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b",
		carriedMetrics: "[]"}}}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if got := fromHub(hub).Annotations["a"] + toHub(spoke).Annotations["a"]; got != "bb" {
					t.Errorf("the annotations became %q", got)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(spoke.Annotations) != 2 || len(hub.Annotations) != 1 {
		t.Errorf("the converted objects have now the annotations %v and %v", spoke.Annotations, hub.Annotations)
	}
}
