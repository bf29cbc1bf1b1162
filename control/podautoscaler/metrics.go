package podautoscaler

import (
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Metrics reads metrics. All values are in thousandths.
type Metrics interface {
	// Pods returns the values of Pods by name. Pods without a value are left out; if no Pod has one, that is an error.
	Pods(ctx context.Context, q Query) (map[string]Sample, error)
	// Object returns the value of one object in a namespace, or of the Namespace itself.
	Object(ctx context.Context, namespace string, of autoscalingv2.CrossVersionObjectReference, metric string,
		selector labels.Selector) (int64, error)
	// External returns all values of a metric from outside the cluster; it is an error if there is none.
	External(ctx context.Context, namespace, metric string, selector labels.Selector) ([]int64, error)
}

// Query asks for a metric of Pods: the usage of a Resource by all containers or one Container, or the custom metric Metric.
type Query struct {
	Namespace string
	Selector  labels.Selector

	Resource  corev1.ResourceName
	Container string

	Metric         string
	MetricSelector labels.Selector
}

// Sample is the value of one Pod in the Window before At.
type Sample struct {
	Value  int64
	At     time.Time
	Window time.Duration
}

// measurement is the result of reading one metric of an autoscaler.
type measurement struct {
	pods   map[string]Sample
	values []int64
	err    error
}

// read reads a metric of an autoscaler. A spec without the part for its type gives an empty result.
func read(ctx context.Context, m Metrics, namespace string, selector labels.Selector, spec *autoscalingv2.MetricSpec) (r measurement) {
	q := Query{Namespace: namespace, Selector: selector}
	switch sourceType(spec) {
	case autoscalingv2.ResourceMetricSourceType:
		q.Resource = spec.Resource.Name
		r.pods, r.err = m.Pods(ctx, q)
	case autoscalingv2.ContainerResourceMetricSourceType:
		q.Resource, q.Container = spec.ContainerResource.Name, spec.ContainerResource.Container
		r.pods, r.err = m.Pods(ctx, q)
	case autoscalingv2.PodsMetricSourceType:
		if q.Metric, q.MetricSelector, r.err = metricAndSelector(&spec.Pods.Metric); r.err == nil {
			r.pods, r.err = m.Pods(ctx, q)
		}
	case autoscalingv2.ObjectMetricSourceType:
		name, selector, err := metricAndSelector(&spec.Object.Metric)
		if r.err = err; err == nil {
			var v int64
			v, r.err = m.Object(ctx, namespace, spec.Object.DescribedObject, name, selector)
			r.values = []int64{v}
		}
	case autoscalingv2.ExternalMetricSourceType:
		name, selector, err := metricAndSelector(&spec.External.Metric)
		if r.err = err; err == nil {
			r.values, r.err = m.External(ctx, namespace, name, selector)
		}
	}
	return r
}

// sourceType returns the type of a metric, or the empty type if the part for that type is not set.
func sourceType(spec *autoscalingv2.MetricSpec) autoscalingv2.MetricSourceType {
	isSet := map[autoscalingv2.MetricSourceType]bool{
		autoscalingv2.ResourceMetricSourceType:          spec.Resource != nil,
		autoscalingv2.ContainerResourceMetricSourceType: spec.ContainerResource != nil,
		autoscalingv2.PodsMetricSourceType:              spec.Pods != nil, autoscalingv2.ObjectMetricSourceType: spec.Object != nil,
		autoscalingv2.ExternalMetricSourceType: spec.External != nil,
	}
	if isSet[spec.Type] {
		return spec.Type
	}
	return ""
}
