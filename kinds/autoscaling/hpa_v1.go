package autoscaling

import (
	"encoding/json"
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// The annotations in which v1 carries the fields that it does not have.
const (
	carriedMetrics    = "autoscaling.alpha.kubernetes.io/metrics"
	carriedCurrent    = "autoscaling.alpha.kubernetes.io/current-metrics"
	carriedConditions = "autoscaling.alpha.kubernetes.io/conditions"
	carriedBehavior   = "autoscaling.alpha.kubernetes.io/behavior"
)

func carriers() []string {
	return []string{
		carriedMetrics, carriedCurrent, carriedConditions, carriedBehavior,
		"autoscaling.alpha.kubernetes.io/scale-down-tolerance",
		"autoscaling.alpha.kubernetes.io/scale-up-tolerance",
	}
}

// HorizontalPodAutoscalersV1 are the older version of the same objects: a target for CPU, and all else in
// annotations.
func HorizontalPodAutoscalersV1(hub *kind.Def) *kind.Def {
	return kind.Version(hub, kind.Resource[autoscalingv1.HorizontalPodAutoscaler]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"},
			Plural:           "horizontalpodautoscalers",
			Short:            []string{"hpa"}, Categories: []string{"all"},
			Generation: true,
		},
		Spec:   func(h *autoscalingv1.HorizontalPodAutoscaler) any { return &h.Spec },
		Status: func(h *autoscalingv1.HorizontalPodAutoscaler) any { return &h.Status },
		Default: func(h *autoscalingv1.HorizontalPodAutoscaler) {
			if h.Spec.MinReplicas == nil {
				h.Spec.MinReplicas = new(int32(1))
			}
		},
		Columns: columns(toHub),
		Subs:    []kind.Sub[autoscalingv1.HorizontalPodAutoscaler]{{Name: "status"}},
	}, toHub, fromHub)
}

// withoutCarriers returns the annotations without those that carry fields. It does not modify the argument, which may
// be shared.
func withoutCarriers(annotations map[string]string) map[string]string {
	if !slices.ContainsFunc(carriers(), func(key string) bool { _, there := annotations[key]; return there }) {
		return annotations
	}
	annotations = maps.Clone(annotations)
	for _, key := range carriers() {
		delete(annotations, key)
	}
	return annotations
}

func toHub(in *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
	out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
	out.Status.ObservedGeneration, out.Status.LastScaleTime = in.Status.ObservedGeneration, in.Status.LastScaleTime
	out.Status.CurrentReplicas, out.Status.DesiredReplicas = in.Status.CurrentReplicas, in.Status.DesiredReplicas

	// Malformed metrics are ignored: those of an older cluster may be.
	if carried, ok := carriedIn[[]autoscalingv1.MetricSpec](in.Annotations, carriedMetrics); ok {
		for i := range carried {
			out.Spec.Metrics = append(out.Spec.Metrics, metricToHub(&carried[i]))
		}
	}
	if cpu := in.Spec.TargetCPUUtilizationPercentage; cpu != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*cpu))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
	if b, ok := carriedIn[behavior](in.Annotations, carriedBehavior); ok && b != (behavior{}) {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: b.ScaleUp.toHub(), ScaleDown: b.ScaleDown.toHub()}
	}
	if carried, ok := carriedIn[[]autoscalingv1.MetricStatus](in.Annotations, carriedCurrent); ok {
		for i := range carried {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, currentToHub(&carried[i]))
		}
	} else if cpu := in.Status.CurrentCPUUtilizationPercentage; cpu != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(*cpu)},
			},
		}}
	}
	if carried, ok := carriedIn[[]autoscalingv1.HorizontalPodAutoscalerCondition](in.Annotations, carriedConditions); ok {
		for _, c := range carried {
			out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				ObservedGeneration: c.ObservedGeneration,
			})
		}
	}
	out.Annotations = withoutCarriers(out.Annotations)
	return out
}

func fromHub(in *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv1.HorizontalPodAutoscaler {
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
	out.Spec.ScaleTargetRef = autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef)
	out.Spec.MinReplicas, out.Spec.MaxReplicas = in.Spec.MinReplicas, in.Spec.MaxReplicas
	out.Status.ObservedGeneration, out.Status.LastScaleTime = in.Status.ObservedGeneration, in.Status.LastScaleTime
	out.Status.CurrentReplicas, out.Status.DesiredReplicas = in.Status.CurrentReplicas, in.Status.DesiredReplicas

	annotations := maps.Clone(withoutCarriers(in.Annotations))
	carry := func(key string, value any) {
		if text, err := json.Marshal(value); err == nil {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[key] = string(text)
		}
	}
	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		if cpu := cpuUtilization(m); cpu == nil {
			others = append(others, metricFromHub(m))
		} else if out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = new(*cpu)
		}
	}
	if len(others) > 0 {
		carry(carriedMetrics, others)
	}
	var current []autoscalingv1.MetricStatus
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		current = append(current, currentFromHub(m))
		if m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU &&
			m.Resource.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = new(*m.Resource.Current.AverageUtilization)
		}
	}
	if len(current) > 0 {
		carry(carriedCurrent, current)
	}
	if b := in.Spec.Behavior; b != nil {
		carry(carriedBehavior, behavior{ScaleUp: rulesOf(b.ScaleUp), ScaleDown: rulesOf(b.ScaleDown)})
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range in.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	if len(conditions) > 0 {
		carry(carriedConditions, conditions)
	}
	out.Annotations = annotations
	return out
}

func cpuUtilization(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

func carriedIn[V any](annotations map[string]string, key string) (value V, ok bool) {
	text, there := annotations[key]
	if !there {
		return value, false
	}
	return value, json.Unmarshal([]byte(text), &value) == nil
}

// behavior is the content of its annotation, in which fields have their Go names.
type behavior struct{ ScaleUp, ScaleDown *rules }

type rules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policy
	Tolerance                  *resource.Quantity
}

type policy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func rulesOf(in *autoscalingv2.HPAScalingRules) *rules {
	if in == nil {
		return nil
	}
	out := &rules{StabilizationWindowSeconds: in.StabilizationWindowSeconds, SelectPolicy: in.SelectPolicy, Tolerance: in.Tolerance}
	for _, p := range in.Policies {
		out.Policies = append(out.Policies, policy(p))
	}
	return out
}

func (r *rules) toHub() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy,
		Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
	}
	return out
}
