package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// Metrics in annotations of v1 have an older form.

func metricToHub(in *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(in.Type)}
	if o := in.Object; o != nil {
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &o.TargetValue}
		if o.AverageValue != nil {
			target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: o.AverageValue}
			// The old type cannot omit the value: zero means absent.
			if !o.TargetValue.IsZero() {
				target.Value = &o.TargetValue
			}
		}
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(o.Target), Target: target,
			Metric: autoscalingv2.MetricIdentifier{Name: o.MetricName, Selector: o.Selector},
		}
	}
	if p := in.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: p.MetricName, Selector: p.Selector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &p.TargetAverageValue},
		}
	}
	if r := in.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: r.Name,
			Target: usageTarget(r.TargetAverageUtilization, r.TargetAverageValue)}
	}
	if c := in.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: c.Name, Container: c.Container, Target: usageTarget(c.TargetAverageUtilization, c.TargetAverageValue),
		}
	}
	if e := in.External; e != nil {
		target := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: e.TargetValue, AverageValue: e.TargetAverageValue}
		if e.TargetValue == nil {
			target.Type = autoscalingv2.AverageValueMetricType
		}
		out.External = &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: e.MetricName, Selector: e.MetricSelector}, Target: target,
		}
	}
	return out
}

func usageTarget(utilization *int32, value *resource.Quantity) autoscalingv2.MetricTarget {
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: utilization, AverageValue: value}
	if utilization == nil {
		target.Type = autoscalingv2.AverageValueMetricType
	}
	return target
}

func metricFromHub(in *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(in.Type)}
	if o := in.Object; o != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(o.DescribedObject), MetricName: o.Metric.Name,
			TargetValue: ptr.Deref(o.Target.Value, resource.Quantity{}), Selector: o.Metric.Selector, AverageValue: o.Target.AverageValue,
		}
	}
	if p := in.Pods; p != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: p.Metric.Name, TargetAverageValue: ptr.Deref(p.Target.AverageValue, resource.Quantity{}),
			Selector: p.Metric.Selector,
		}
	}
	if r := in.Resource; r != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: r.Name, TargetAverageUtilization: r.Target.AverageUtilization, TargetAverageValue: r.Target.AverageValue,
		}
	}
	if c := in.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: c.Name, Container: c.Container,
			TargetAverageUtilization: c.Target.AverageUtilization, TargetAverageValue: c.Target.AverageValue,
		}
	}
	if e := in.External; e != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: e.Metric.Name, MetricSelector: e.Metric.Selector,
			TargetValue: e.Target.Value, TargetAverageValue: e.Target.AverageValue,
		}
	}
	return out
}

func currentToHub(in *autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(in.Type)}
	if o := in.Object; o != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(o.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: o.MetricName, Selector: o.Selector},
			Current:         autoscalingv2.MetricValueStatus{Value: &o.CurrentValue, AverageValue: o.AverageValue},
		}
	}
	if p := in.Pods; p != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: p.MetricName, Selector: p.Selector},
			Current: autoscalingv2.MetricValueStatus{AverageValue: &p.CurrentAverageValue},
		}
	}
	if r := in.Resource; r != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{Name: r.Name, Current: autoscalingv2.MetricValueStatus{
			AverageValue: &r.CurrentAverageValue, AverageUtilization: r.CurrentAverageUtilization,
		}}
	}
	if c := in.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: c.Name, Container: c.Container,
			Current: autoscalingv2.MetricValueStatus{
				AverageValue: &c.CurrentAverageValue, AverageUtilization: c.CurrentAverageUtilization,
			}}
	}
	if e := in.External; e != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: e.MetricName, Selector: e.MetricSelector},
			Current: autoscalingv2.MetricValueStatus{Value: &e.CurrentValue, AverageValue: e.CurrentAverageValue},
		}
	}
	return out
}

func currentFromHub(in *autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(in.Type)}
	if o := in.Object; o != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target: autoscalingv1.CrossVersionObjectReference(o.DescribedObject), MetricName: o.Metric.Name,
			CurrentValue: ptr.Deref(o.Current.Value, resource.Quantity{}), Selector: o.Metric.Selector,
			AverageValue: o.Current.AverageValue,
		}
	}
	if p := in.Pods; p != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{
			MetricName: p.Metric.Name, CurrentAverageValue: ptr.Deref(p.Current.AverageValue, resource.Quantity{}),
			Selector: p.Metric.Selector,
		}
	}
	if r := in.Resource; r != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: r.Name, CurrentAverageUtilization: r.Current.AverageUtilization,
			CurrentAverageValue: ptr.Deref(r.Current.AverageValue, resource.Quantity{}),
		}
	}
	if c := in.ContainerResource; c != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: c.Name, Container: c.Container,
			CurrentAverageUtilization: c.Current.AverageUtilization,
			CurrentAverageValue:       ptr.Deref(c.Current.AverageValue, resource.Quantity{}),
		}
	}
	if e := in.External; e != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: e.Metric.Name, MetricSelector: e.Metric.Selector,
			CurrentValue: ptr.Deref(e.Current.Value, resource.Quantity{}), CurrentAverageValue: e.Current.AverageValue,
		}
	}
	return out
}
