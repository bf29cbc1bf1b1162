package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// The groups of the three metrics APIs, and their supported versions.
const (
	resourceGroup = metricsv1beta1.GroupName
	customGroup   = "custom.metrics.k8s.io"
	externalGroup = "external.metrics.k8s.io"

	version1 = "v1beta1"
	version2 = "v1beta2"
)

// Sources is how Served reaches the metrics APIs. Each field may be nil: then that API is not served.
type Sources struct {
	// Versions returns the versions of a group that aggregated API servers serve, the preferred one first.
	Versions func(group string) []string
	// Send sends a request to the aggregated API server of its group version as the controller, if that is authorized.
	Send func(context.Context, *Request) (*Answer, error)
	// Usage returns the usage of Pods as this cluster measures it itself, which is used unless an aggregated API server serves
	// the resource metrics API.
	Usage func(ctx context.Context, namespace string, selector labels.Selector) ([]metricsv1beta1.PodMetrics, error)
	// Resources finds the resources of a kind.
	Resources Mapper
}

// Served returns Metrics that are read from the three metrics APIs. Which server serves them is looked up for every request.
func Served(s Sources) Metrics { return &served{s} }

// Absent returns the Metrics of a cluster that serves none.
func Absent() Metrics { return Served(Sources{}) }

type served struct{ Sources }

func (s *served) versions(group string) []string {
	if s.Versions == nil {
		return nil
	}
	return s.Versions(group)
}

// Pods implements Metrics.
func (s *served) Pods(ctx context.Context, q Query) (map[string]Sample, error) {
	if q.Resource != "" {
		return s.usage(ctx, q)
	}
	list, err := s.custom(ctx, &Request{
		Namespace: q.Namespace, Resource: "pods", Name: "*", Subresource: q.Metric, Selector: q.Selector, MetricSelector: q.MetricSelector,
	})
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	out := make(map[string]Sample, len(list.Items))
	for i := range list.Items {
		v := &list.Items[i]
		out[v.DescribedObject.Name] = Sample{Value: v.Value.MilliValue(), At: v.Timestamp.Time, Window: v.window()}
	}
	return out, nil
}

// Object implements Metrics. A reference to a Namespace means that of the autoscaler, whatever its name is.
func (s *served) Object(ctx context.Context, namespace string, of autoscalingv2.CrossVersionObjectReference, metric string,
	selector labels.Selector) (int64, error) {
	v, err := s.object(ctx, namespace, of, metric, selector)
	if err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	return v, nil
}

func (s *served) object(ctx context.Context, namespace string, of autoscalingv2.CrossVersionObjectReference, metric string,
	selector labels.Selector) (int64, error) {
	gk := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind).GroupKind()
	r := &Request{Namespace: namespace, Resource: "metrics", Name: metric, MetricSelector: selector}
	if gk != (schema.GroupKind{Kind: "Namespace"}) {
		if _, err := s.customVersion(); err != nil {
			return 0, err
		}
		on, err := s.resource(gk)
		if err != nil {
			return 0, fmt.Errorf("unable to map kind %s to resource: %w", gk, err)
		}
		r.Resource, r.Name, r.Subresource = on.String(), of.Name, metric
	}
	list, err := s.custom(ctx, r)
	if err != nil {
		return 0, err
	}
	if len(list.Items) != 1 {
		return 0, fmt.Errorf("the custom metrics API server returned %v results when we asked for exactly one", len(list.Items))
	}
	return list.Items[0].Value.MilliValue(), nil
}

func (s *served) resource(gk schema.GroupKind) (schema.GroupResource, error) {
	none := fmt.Errorf("no matches for kind %q in group %q", gk.Kind, gk.Group)
	if s.Resources == nil {
		return schema.GroupResource{}, none
	}
	all, err := s.Resources(gk)
	if err == nil && len(all) == 0 {
		err = none
	}
	if err != nil {
		return schema.GroupResource{}, err
	}
	return all[0], nil
}

// External implements Metrics.
func (s *served) External(ctx context.Context, namespace, metric string, selector labels.Selector) ([]int64, error) {
	var list metricValueList
	r := &Request{Group: externalGroup, Version: version1, Namespace: namespace, Resource: metric, Selector: selector}
	if err := s.get(ctx, r, &list); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from external metrics API")
	}
	out := make([]int64, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Value.MilliValue()
	}
	return out, nil
}

// customVersion returns the version of the custom metrics API to use: the first supported one, in the server's order of
// preference.
func (s *served) customVersion() (string, error) {
	all := s.versions(customGroup)
	if len(all) == 0 {
		return "", fmt.Errorf("no custom metrics API (%s) registered", customGroup)
	}
	for _, v := range all {
		if v == version1 || v == version2 {
			return v, nil
		}
	}
	return "", errors.New("no known available metric versions found")
}

// custom reads custom metrics.
func (s *served) custom(ctx context.Context, r *Request) (*metricValueList, error) {
	v, err := s.customVersion()
	if err != nil {
		return nil, err
	}
	r.Group, r.Version = customGroup, v
	var list metricValueList
	if err := s.get(ctx, r, &list); err != nil {
		return nil, err
	}
	if list.Kind != "MetricValueList" {
		return nil, fmt.Errorf("the custom metrics API server didn't return MetricValueList, the type is %.100q", list.Kind)
	}
	return &list, nil
}

// usage reads the usage of a resource by Pods: from an aggregated API server if one serves the API, else from this cluster.
func (s *served) usage(ctx context.Context, q Query) (map[string]Sample, error) {
	all, err := s.podMetrics(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	out := map[string]Sample{}
	for i := range all {
		if value, known := usageOf(&all[i], q.Resource, q.Container); known {
			out[all[i].Name] = Sample{Value: value, At: all[i].Timestamp.Time, Window: all[i].Window.Duration}
		}
	}
	return out, nil
}

func (s *served) podMetrics(ctx context.Context, q Query) ([]metricsv1beta1.PodMetrics, error) {
	if s.Usage != nil && !slices.Contains(s.versions(resourceGroup), version1) {
		return s.Usage(ctx, q.Namespace, q.Selector)
	}
	var list podMetricsList
	err := s.get(ctx, &Request{Group: resourceGroup, Version: version1, Namespace: q.Namespace, Resource: "pods", Selector: q.Selector},
		&list)
	if err == nil && list.Kind != "PodMetricsList" {
		err = fmt.Errorf("the resource metrics API server didn't return PodMetricsList, the type is %.100q", list.Kind)
	}
	return list.podMetrics(), err
}

// usageOf returns the usage of all containers of a Pod, or one of them, in thousandths. known is false if the usage of a
// container is missing.
func usageOf(p *metricsv1beta1.PodMetrics, of corev1.ResourceName, container string) (sum int64, known bool) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if container != "" && c.Name != container {
			continue
		}
		v, found := c.Usage[of]
		if !found {
			return 0, false
		}
		if sum, known = sum+v.MilliValue(), true; container != "" {
			break
		}
	}
	return sum, known
}
