package podautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// evaluation has the objects and settings that the metrics of an autoscaler are evaluated with.
type evaluation struct {
	scale     *autoscalingv1.Scale
	pods      []*corev1.Pod
	tolerance tolerance
	options   *Options
	now       time.Time
}

// proposal is the number of Pods that a metric proposes.
type proposal struct {
	replicas int32
	name     string
	status   autoscalingv2.MetricStatus
}

// failure is the error of a metric: the reason and error of the condition, and the error for the Event, which wraps it.
type failure struct {
	reason string
	err    error
	outer  error
}

// propose evaluates one metric.
func (s *evaluation) propose(spec *autoscalingv2.MetricSpec, r measurement) (proposal, *failure) {
	switch sourceType(spec) {
	case autoscalingv2.ResourceMetricSourceType:
		m := spec.Resource
		p, current, err := s.resource(m.Name, "", m.Target, r)
		if err != nil {
			return p, &failure{"FailedGetResourceMetric", err, fmt.Errorf("failed to get %s resource metric value: %w", m.Name, err)}
		}
		p.status = autoscalingv2.MetricStatus{Type: spec.Type,
			Resource: &autoscalingv2.ResourceMetricStatus{Name: m.Name, Current: current}}
		return p, nil
	case autoscalingv2.ContainerResourceMetricSourceType:
		m := spec.ContainerResource
		p, current, err := s.resource(m.Name, m.Container, m.Target, r)
		if err != nil {
			return p, &failure{"FailedGetContainerResourceMetric", err,
				fmt.Errorf("failed to get %s container metric value: %w", m.Container, err)}
		}
		p.status = autoscalingv2.MetricStatus{Type: spec.Type,
			ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container, Current: current}}
		return p, nil
	case autoscalingv2.PodsMetricSourceType:
		p, err := s.podsMetric(spec.Pods, r)
		if err != nil {
			return p, &failure{"FailedGetPodsMetric", err, fmt.Errorf("failed to get pods metric value: %w", err)}
		}
		return p, nil
	case autoscalingv2.ObjectMetricSourceType:
		p, inner, err := s.object(spec.Object, r)
		if err != nil {
			return p, &failure{"FailedGetObjectMetric", inner, fmt.Errorf("failed to get object metric value: %w", err)}
		}
		return p, nil
	case autoscalingv2.ExternalMetricSourceType:
		p, inner, err := s.external(spec.External, r)
		if err != nil {
			return p, &failure{"FailedGetExternalMetric", inner,
				fmt.Errorf("failed to get %s external metric value: %w", spec.External.Metric.Name, err)}
		}
		return p, nil
	}
	err := fmt.Errorf("unknown metric source type %q", spec.Type)
	return proposal{}, &failure{"InvalidMetricSourceType", err, err}
}

// resource evaluates the usage of a resource by Pods, or by one container of each: as an amount, or as utilization of the
// requests.
func (s *evaluation) resource(name corev1.ResourceName, container string, target autoscalingv2.MetricTarget, r measurement) (p proposal,
	current autoscalingv2.MetricValueStatus, err error) {
	if target.AverageValue == nil && target.AverageUtilization == nil {
		return p, current, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	}
	measure := "utilization"
	if target.AverageValue != nil {
		measure = "usage"
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("failed to get %s %s: %w", name, measure, err)
		}
	}()
	if r.err != nil {
		return p, current, fmt.Errorf("unable to get metrics for resource %s: %w", name, r.err)
	}
	g, err := groupPods(s.pods, r.pods, name == corev1.ResourceCPU, s.options, s.now)
	if err != nil {
		return p, current, err
	}
	if target.AverageValue != nil {
		var value int64
		p.name = fmt.Sprintf("%s resource", name)
		p.replicas, value, err = s.replicasForPodAverage(&g, target.AverageValue.MilliValue())
		current.AverageValue = resourceQuantity(name, value)
		return p, current, err
	}
	asked, err := requests(s.pods, container, name)
	if err != nil {
		return p, current, err
	}
	wanted := *target.AverageUtilization
	ratio := func(samples map[string]Sample) (float64, error) {
		f, _, _, err := utilization(samples, asked, wanted)
		return f, err
	}
	// A Pod without a sample counts with its whole request, or the target if that is more.
	p.replicas, err = g.replicas(s.scale.Spec.Replicas, s.tolerance, ratio,
		func(pod string) int64 { return asked[pod] * int64(max(100, wanted)) / 100 })
	if err != nil {
		return p, current, err
	}
	_, percent, value, err := utilization(g.samples, asked, wanted)
	current.AverageUtilization, current.AverageValue = &percent, resourceQuantity(name, value)
	p.name = fmt.Sprintf("%s resource utilization (percentage of request)", name)
	if container != "" {
		p.name = fmt.Sprintf("%s container resource utilization (percentage of request)", name)
	}
	return p, current, err
}

// resourceQuantity returns a value as a quantity in the usual format of the resource.
func resourceQuantity(name corev1.ResourceName, value int64) *resource.Quantity {
	if name == corev1.ResourceMemory {
		return resource.NewMilliQuantity(value, resource.BinarySI)
	}
	return resource.NewMilliQuantity(value, resource.DecimalSI)
}

func decimalQuantity(value int64) *resource.Quantity {
	return resource.NewMilliQuantity(value, resource.DecimalSI)
}

// replicasForPodAverage evaluates an average value of Pods.
func (s *evaluation) replicasForPodAverage(g *podGroups, target int64) (replicas int32, value int64, err error) {
	ratio := func(samples map[string]Sample) (float64, error) {
		f, _ := average(samples, target)
		return f, nil
	}
	replicas, err = g.replicas(s.scale.Spec.Replicas, s.tolerance, ratio, func(string) int64 { return target })
	_, value = average(g.samples, target)
	return replicas, value, err
}

// podsMetric evaluates a custom metric of Pods.
func (s *evaluation) podsMetric(m *autoscalingv2.PodsMetricSource, r measurement) (p proposal, err error) {
	if m.Target.AverageValue == nil {
		return p, errors.New("invalid pods metric source: no average value target was set")
	}
	if r.err != nil {
		return p, fmt.Errorf("unable to get metric %s: %w", m.Metric.Name, r.err)
	}
	g, err := groupPods(s.pods, r.pods, false, s.options, s.now)
	if err != nil {
		return p, err
	}
	replicas, value, err := s.replicasForPodAverage(&g, m.Target.AverageValue.MilliValue())
	return proposal{replicas, "pods metric " + m.Metric.Name, autoscalingv2.MetricStatus{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricStatus{Metric: m.Metric,
			Current: autoscalingv2.MetricValueStatus{AverageValue: decimalQuantity(value)}},
	}}, err
}

// object evaluates a metric of one object. inner is the error for the condition.
func (s *evaluation) object(m *autoscalingv2.ObjectMetricSource, r measurement) (p proposal, inner, err error) {
	byValue := m.Target.Type == autoscalingv2.ValueMetricType && m.Target.Value != nil
	byAverage := m.Target.Type == autoscalingv2.AverageValueMetricType && m.Target.AverageValue != nil
	if !byValue && !byAverage {
		err = errors.New("invalid object metric source: neither a value target nor an average value target was set")
		return p, err, err
	}
	st := &autoscalingv2.ObjectMetricStatus{DescribedObject: m.DescribedObject, Metric: m.Metric}
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ObjectMetricSourceType, Object: st}
	if r.err != nil {
		inner = fmt.Errorf("unable to get metric %s on %s %s/%s: %w", m.Metric.Name, m.DescribedObject.Kind, s.scale.Namespace,
			m.DescribedObject.Name, r.err)
	}
	if byValue {
		if inner == nil {
			p.replicas, inner = s.replicasForValue(sumValues(r.values), m.Target.Value.MilliValue())
		}
		p.name = fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name)
		st.Current.Value = decimalQuantity(sumValues(r.values))
		return p, inner, inner
	}
	if inner != nil {
		return p, inner, fmt.Errorf("failed to get %s object metric: %w", m.Metric.Name, inner)
	}
	var each int64
	p.replicas, each = s.replicasForAverage(sumValues(r.values), m.Target.AverageValue.MilliValue())
	p.name = fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector)
	st.Current.AverageValue = decimalQuantity(each)
	return p, nil, nil
}

// external evaluates a metric from outside the cluster.
func (s *evaluation) external(m *autoscalingv2.ExternalMetricSource, r measurement) (p proposal, inner, err error) {
	if m.Target.AverageValue == nil && m.Target.Value == nil {
		err = errors.New("invalid external metric source: neither a value target nor an average value target was set")
		return p, err, err
	}
	st := &autoscalingv2.ExternalMetricStatus{Metric: m.Metric}
	p.name = fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector)
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: st}
	if r.err != nil {
		inner = fmt.Errorf("unable to get external metric %s/%s/%+v: %w", s.scale.Namespace, m.Metric.Name, m.Metric.Selector, r.err)
	}
	if m.Target.AverageValue != nil {
		if inner != nil {
			return p, inner, fmt.Errorf("failed to get %s external metric: %w", m.Metric.Name, inner)
		}
		var each int64
		p.replicas, each = s.replicasForAverage(sumValues(r.values), m.Target.AverageValue.MilliValue())
		st.Current.AverageValue = decimalQuantity(each)
		return p, nil, nil
	}
	if inner == nil {
		p.replicas, inner = s.replicasForValue(sumValues(r.values), m.Target.Value.MilliValue())
	}
	if inner != nil {
		return p, inner, fmt.Errorf("failed to get external metric %s: %w", m.Metric.Name, inner)
	}
	st.Current.Value = decimalQuantity(sumValues(r.values))
	return p, nil, nil
}

// replicasForValue evaluates a value that all ready Pods share. Without Pods the value alone determines their number.
func (s *evaluation) replicasForValue(value, target int64) (int32, error) {
	ratio := float64(value) / float64(target)
	if s.scale.Spec.Replicas == 0 {
		return ceil(ratio), nil
	}
	if s.tolerance.covers(ratio) {
		return s.scale.Spec.Replicas, nil
	}
	n, err := readyPods(s.pods)
	return ceil(ratio * float64(n)), err
}

// replicasForAverage evaluates a value that is divided among the Pods, and also returns the average.
func (s *evaluation) replicasForAverage(value, target int64) (replicas int32, each int64) {
	have := s.scale.Status.Replicas
	replicas = have
	if !s.tolerance.covers(float64(value) / (float64(target) * float64(have))) {
		replicas = ceil(float64(value) / float64(target))
	}
	if value == math.MaxInt64 || have == 0 {
		return replicas, value
	}
	return replicas, int64(math.Ceil(float64(value) / float64(have)))
}
