package autoscaling

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/resourcename"
)

func validateMetrics(s *autoscalingv2.HorizontalPodAutoscalerSpec, path *field.Path, rule apiVersionRule) field.ErrorList {
	var errs field.ErrorList
	outside := false
	for i := range s.Metrics {
		m := &s.Metrics[i]
		errs = append(errs, validateMetric(m, path.Index(i), rule)...)
		outside = outside || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 && !outside {
		errs = append(errs, field.Forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

// source is one of the five sources of metrics, in the order in which they are validated.
type source struct {
	of    autoscalingv2.MetricSourceType
	field string
	set   bool
	check func(path *field.Path) field.ErrorList
}

func validateMetric(m *autoscalingv2.MetricSpec, path *field.Path, rule apiVersionRule) field.ErrorList {
	sources := []source{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil,
			func(p *field.Path) field.ErrorList { return validateObject(m.Object, p, rule) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil,
			func(p *field.Path) field.ErrorList { return validateExternal(m.External, p) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(p *field.Path) field.ErrorList { return validatePods(m.Pods, p) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil,
			func(p *field.Path) field.ErrorList { return validateResource(m.Resource, p) }},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil,
			func(p *field.Path) field.ErrorList {
				return validateContainerResource(m.ContainerResource, p)
			}},
	}
	known := make([]autoscalingv2.MetricSourceType, 0, len(sources))
	for _, s := range sources {
		known = append(known, s.of)
	}
	slices.Sort(known)

	var errs field.ErrorList
	unknown := field.NotSupported(path.Child("type"), m.Type, known)
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	if !slices.Contains(known, m.Type) {
		errs = append(errs, unknown)
	}
	present := 0
	for _, s := range sources {
		if !s.set {
			continue
		}
		if present++; present == 1 {
			errs = append(errs, s.check(path.Child(s.field))...)
		}
	}
	if !slices.Contains(known, m.Type) {
		errs = append(errs, unknown)
	}
	for _, s := range sources {
		if s.of == m.Type && !s.set {
			errs = append(errs, field.Required(path.Child(s.field), "must populate information for the given metric source"))
		}
	}
	for _, s := range sources {
		if present > 1 && s.set && s.of != m.Type {
			errs = append(errs, field.Forbidden(path.Child(s.field), "must populate the given metric source only"))
		}
	}
	return errs
}

func validateObject(o *autoscalingv2.ObjectMetricSource, path *field.Path, rule apiVersionRule) field.ErrorList {
	errs := validateReference(o.DescribedObject, path.Child("describedObject"), rule)
	errs = append(errs, check.RequiredPathSegment(o.Metric.Name, path.Child("metric", "name"), "must specify a metric name")...)
	errs = append(errs, validateTarget(o.Target, path.Child("target"))...)
	if o.Target.Value == nil && o.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternal(e *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := check.RequiredPathSegment(e.Metric.Name, path.Child("metric", "name"), "must specify a metric name")
	errs = append(errs, validateTarget(e.Target, path.Child("target"))...)
	if e.Target.Value == nil && e.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must set either a target value for metric or a per-pod target"))
	}
	if e.Target.Value != nil && e.Target.AverageValue != nil {
		errs = append(errs, field.Forbidden(path.Child("target", "value"),
			"may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePods(p *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := check.RequiredPathSegment(p.Metric.Name, path.Child("metric", "name"), "must specify a metric name")
	errs = append(errs, validateTarget(p.Target, path.Child("target"))...)
	if p.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateResource(r *autoscalingv2.ResourceMetricSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	return append(errs, validateUsage(r.Target, path.Child("target"))...)
}

func validateContainerResource(c *autoscalingv2.ContainerResourceMetricSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	} else {
		errs = append(errs, resourcename.ValidateContainer(c.Name, path.Child("name"))...)
	}
	if c.Container == "" {
		errs = append(errs, field.Required(path.Child("container"), "must specify a container"))
	} else {
		errs = append(errs, check.DNSLabel(c.Container, path.Child("container"))...)
	}
	return append(errs, validateUsage(c.Target, path.Child("target"))...)
}

func validateUsage(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	errs := validateTarget(t, path)
	if t.AverageUtilization == nil && t.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	}
	if t.AverageUtilization != nil && t.AverageValue != nil {
		errs = append(errs, field.Forbidden(path.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	}
	if t.Type != autoscalingv2.UtilizationMetricType && t.Type != autoscalingv2.ValueMetricType &&
		t.Type != autoscalingv2.AverageValueMetricType {
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	positive := func(q *resource.Quantity, path *field.Path) {
		if q != nil && q.Sign() != 1 {
			errs = append(errs, field.Invalid(path, q, "must be positive"))
		}
	}
	positive(t.Value, path.Child("value"))
	positive(t.AverageValue, path.Child("averageValue"))
	if u := t.AverageUtilization; u != nil && *u < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), *u, "must be greater than 0"))
	}
	return errs
}
