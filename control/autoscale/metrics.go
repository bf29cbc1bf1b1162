package autoscale

import (
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Metrics is where measurements come from. All values are in thousandths.
type Metrics interface {
	// Pods measures Pods, by name. Those of which nothing is known are left out; if that is all of them, it is an error.
	Pods(ctx context.Context, q Query) (map[string]Sample, error)
	// Object measures one object in a namespace; of the Namespace itself, that.
	Object(ctx context.Context, namespace string, of autoscalingv2.CrossVersionObjectReference, metric string, selector labels.Selector) (int64, error)
	// External returns all values of something outside of the cluster; none is an error.
	External(ctx context.Context, namespace, metric string, selector labels.Selector) ([]int64, error)
}

// Query says what to measure of which Pods: the usage of a Resource by all containers or one Container, or a Metric that
// somebody serves.
type Query struct {
	Namespace string
	Selector  labels.Selector

	Resource  corev1.ResourceName
	Container string

	Metric         string
	MetricSelector labels.Selector
}

// Sample is what was measured of one Pod: in the Window before At.
type Sample struct {
	Value  int64
	At     time.Time
	Window time.Duration
}

// reading is what a metric of an autoscaler came to.
type reading struct {
	pods   map[string]Sample
	values []int64
	err    error
}

// read measures what a metric asks for. Parts of it that are missing make an error, whatever way they came past the server.
func read(ctx context.Context, m Metrics, namespace string, selector labels.Selector, spec *autoscalingv2.MetricSpec) (r reading) {
	q := Query{Namespace: namespace, Selector: selector}
	switch kindOf(spec) {
	case autoscalingv2.ResourceMetricSourceType:
		q.Resource = spec.Resource.Name
		r.pods, r.err = m.Pods(ctx, q)
	case autoscalingv2.ContainerResourceMetricSourceType:
		q.Resource, q.Container = spec.ContainerResource.Name, spec.ContainerResource.Container
		r.pods, r.err = m.Pods(ctx, q)
	case autoscalingv2.PodsMetricSourceType:
		if q.Metric, q.MetricSelector, r.err = identify(&spec.Pods.Metric); r.err == nil {
			r.pods, r.err = m.Pods(ctx, q)
		}
	case autoscalingv2.ObjectMetricSourceType:
		name, selector, err := identify(&spec.Object.Metric)
		if r.err = err; err == nil {
			var v int64
			v, r.err = m.Object(ctx, namespace, spec.Object.DescribedObject, name, selector)
			r.values = []int64{v}
		}
	case autoscalingv2.ExternalMetricSourceType:
		name, selector, err := identify(&spec.External.Metric)
		if r.err = err; err == nil {
			r.values, r.err = m.External(ctx, namespace, name, selector)
		}
	}
	return r
}

// kindOf is the type of a metric whose part of that type is there, else the empty type.
func kindOf(spec *autoscalingv2.MetricSpec) autoscalingv2.MetricSourceType {
	there := map[autoscalingv2.MetricSourceType]bool{
		autoscalingv2.ResourceMetricSourceType: spec.Resource != nil, autoscalingv2.ContainerResourceMetricSourceType: spec.ContainerResource != nil,
		autoscalingv2.PodsMetricSourceType: spec.Pods != nil, autoscalingv2.ObjectMetricSourceType: spec.Object != nil,
		autoscalingv2.ExternalMetricSourceType: spec.External != nil,
	}
	if there[spec.Type] {
		return spec.Type
	}
	return ""
}
