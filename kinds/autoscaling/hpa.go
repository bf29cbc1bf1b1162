package autoscaling

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// HorizontalPodAutoscalers change the scale of a workload by its load.
func HorizontalPodAutoscalers() *kind.Def {
	return kind.Define(kind.Resource[autoscalingv2.HorizontalPodAutoscaler]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
			Plural:           "horizontalpodautoscalers",
			Short:            []string{"hpa"}, Categories: []string{"all"},
			Generation: true,
		},
		Spec:     func(h *autoscalingv2.HorizontalPodAutoscaler) any { return &h.Spec },
		Status:   func(h *autoscalingv2.HorizontalPodAutoscaler) any { return &h.Status },
		Default:  defaultHPA,
		Validate: validateHPA,
		Columns:  columns(func(h *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler { return h }),
		Subs:     []kind.Sub[autoscalingv2.HorizontalPodAutoscaler]{{Name: "status", Validate: validateHPAStatus}},
	})
}

const defaultUtilization = 80

func defaultHPA(h *autoscalingv2.HorizontalPodAutoscaler) {
	// The annotations that carry v2 fields in v1 never stay on an object of v2.
	h.Annotations = withoutCarriers(h.Annotations)
	if h.Spec.MinReplicas == nil {
		h.Spec.MinReplicas = new(int32(1))
	}
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
	b := h.Spec.Behavior
	if b == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	b.ScaleUp = defaultRules(b.ScaleUp, pods, percent)
	if b.ScaleUp.StabilizationWindowSeconds == nil {
		b.ScaleUp.StabilizationWindowSeconds = new(int32(0))
	}
	// The stabilization window of scaling down has no default here: it is a setting of the controller.
	b.ScaleDown = defaultRules(b.ScaleDown, percent)
}

func defaultRules(r *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	if r == nil {
		r = &autoscalingv2.HPAScalingRules{}
	}
	if r.SelectPolicy == nil {
		r.SelectPolicy = new(autoscalingv2.MaxChangePolicySelect)
	}
	if r.Policies == nil {
		r.Policies = policies
	}
	return r
}

func cpuMetric(utilization int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization},
		},
	}
}
