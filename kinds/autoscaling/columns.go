package autoscaling

import (
	"fmt"
	"strconv"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/kind"
)

// columns returns the columns of both versions: a row is computed from the hub.
func columns[T any, P interface {
	*T
	kind.Object
}](hub func(*T) *autoscalingv2.HorizontalPodAutoscaler) []kind.Column[T] {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	column := func(name, doc string, value func(*autoscalingv2.HorizontalPodAutoscaler) any) kind.Column[T] {
		return kind.Column[T]{Name: name, Description: doc, Value: func(o *T) any { return value(hub(o)) }}
	}
	return []kind.Column[T]{
		kind.NameColumn[T, P](),
		column("Reference", spec["scaleTargetRef"], func(h *autoscalingv2.HorizontalPodAutoscaler) any {
			return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name
		}),
		column("Targets", spec["metrics"], func(h *autoscalingv2.HorizontalPodAutoscaler) any {
			return metricsCell(h.Spec.Metrics, h.Status.CurrentMetrics)
		}),
		column("MinPods", spec["minReplicas"], func(h *autoscalingv2.HorizontalPodAutoscaler) any {
			if h.Spec.MinReplicas == nil {
				return "<unset>"
			}
			return strconv.Itoa(int(*h.Spec.MinReplicas))
		}),
		column("MaxPods", spec["maxReplicas"], func(h *autoscalingv2.HorizontalPodAutoscaler) any { return int64(h.Spec.MaxReplicas) }),
		column("Replicas", status["currentReplicas"], func(h *autoscalingv2.HorizontalPodAutoscaler) any {
			return int64(h.Status.CurrentReplicas)
		}),
		kind.AgeColumn[T, P](),
	}
}

const metricsShown = 2

func metricsCell(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return "<none>"
	}
	var list []string
	for i := range specs[:min(len(specs), metricsShown)] {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		list = append(list, metricCell(&specs[i], &status))
	}
	cell := strings.Join(list, ", ")
	if len(specs) > metricsShown {
		cell += fmt.Sprintf(" + %d more...", len(specs)-metricsShown)
	}
	return cell
}

func metricCell(m *autoscalingv2.MetricSpec, s *autoscalingv2.MetricStatus) string {
	switch {
	case m.Type == autoscalingv2.ExternalMetricSourceType && m.External != nil:
		return usageText(m.External.Target, s.External != nil, func() autoscalingv2.MetricValueStatus { return s.External.Current })
	case m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil:
		return usageText(m.Object.Target, s.Object != nil, func() autoscalingv2.MetricValueStatus { return s.Object.Current })
	case m.Type == autoscalingv2.PodsMetricSourceType && m.Pods != nil:
		current := "<unknown>"
		if s.Pods != nil {
			current = quantityText(s.Pods.Current.AverageValue)
		}
		return current + "/" + quantityText(m.Pods.Target.AverageValue)
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		var current *autoscalingv2.MetricValueStatus
		if s.Resource != nil {
			current = &s.Resource.Current
		}
		return m.Resource.Name.String() + ": " + usage(m.Resource.Target, current)
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil:
		var current *autoscalingv2.MetricValueStatus
		if s.ContainerResource != nil {
			current = &s.ContainerResource.Current
		}
		return m.ContainerResource.Name.String() + ": " + usage(m.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

func usageText(target autoscalingv2.MetricTarget, known bool, status func() autoscalingv2.MetricValueStatus) string {
	current := "<unknown>"
	if target.AverageValue != nil {
		if known && status().AverageValue != nil {
			current = status().AverageValue.String()
		}
		return current + "/" + target.AverageValue.String() + " (avg)"
	}
	if known {
		current = quantityText(status().Value)
	}
	return current + "/" + quantityText(target.Value)
}

func usage(target autoscalingv2.MetricTarget, status *autoscalingv2.MetricValueStatus) string {
	current, wanted := "<unknown>", "<auto>"
	if target.AverageValue != nil {
		if status != nil {
			current = quantityText(status.AverageValue)
		}
		return current + "/" + target.AverageValue.String()
	}
	if status != nil && status.AverageUtilization != nil {
		current = fmt.Sprintf("%d%%", *status.AverageUtilization)
	}
	if target.AverageUtilization != nil {
		wanted = fmt.Sprintf("%d%%", *target.AverageUtilization)
	}
	return current + "/" + wanted
}

func quantityText(q *resource.Quantity) string {
	if q == nil {
		return "<nil>"
	}
	return q.String()
}
