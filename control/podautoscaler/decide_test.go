package podautoscaler

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/textcase"
)

var now = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestDecide runs the cases of testdata/decide: an autoscaler, its target and the metrics, and after "=>" the plan.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/decide/*.txt", "=>", func(t *testing.T, in string) string { return runCase(t, strings.TrimSpace(in)) })
}

func runCase(t *testing.T, in string) string {
	o := &Options{}
	o.fill()
	f := &decisionInput{
		hpa: &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h", Namespace: "ns", Generation: 4}},
		scale: &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
			Status: autoscalingv1.ScaleStatus{Selector: "app=web"}},
		now: now, options: o,
	}
	var refused error
	for line := range strings.SplitSeq(in, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch fields := strings.Fields(rest); word {
		case "hpa":
			parseHPA(t, f.hpa, rest)
		case "metric":
			f.hpa.Spec.Metrics = append(f.hpa.Spec.Metrics, parseMetric(t, fields))
		case "up", "down":
			if f.hpa.Spec.Behavior == nil {
				f.hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{}
			}
			if r := parseRules(t, fields); word == "up" {
				f.hpa.Spec.Behavior.ScaleUp = r
			} else {
				f.hpa.Spec.Behavior.ScaleDown = r
			}
		case "zeroed":
			f.hpa.Status.Conditions = append(f.hpa.Status.Conditions,
				autoscalingv2.HorizontalPodAutoscalerCondition{Type: zero, Status: corev1.ConditionTrue})
		case "scale":
			f.scale.Spec.Replicas, f.scale.Status.Replicas = number(t, fields[0]), number(t, fields[0])
			if len(fields) > 1 {
				f.scale.Status.Selector = strings.TrimPrefix(fields[1], "selector=")
			}
		case "pod":
			f.pods = append(f.pods, parsePod(t, fields))
		case "read":
			f.measurements = append(f.measurements, parseReading(t, rest))
		case "recommended", "grew", "shrank":
			m := timedCount{number(t, fields[0]), now.Add(-duration(t, fields[1]))}
			to := map[string]*[]timedCount{"recommended": &f.history.recommendations, "grew": &f.history.grown,
				"shrank": &f.history.shrunk}[word]
			*to = append(*to, m)
		case "rivals":
			f.otherAutoscalers = fields
		case "refused":
			refused = errors.New(rest)
		default:
			t.Fatalf("line %q", line)
		}
	}
	before := fmt.Sprint(f.hpa, f.history)
	p := decide(f)
	if p.rescale {
		p.recordRescale(refused)
	}
	if fmt.Sprint(f.hpa, f.history) != before {
		t.Error("the autoscaler handed in was changed")
	}
	return describe(p)
}

func number(t *testing.T, s string) int32 {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parseHPA(t *testing.T, h *autoscalingv2.HorizontalPodAutoscaler, line string) {
	for f := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "min":
			h.Spec.MinReplicas = new(number(t, value))
		case "max":
			h.Spec.MaxReplicas = number(t, value)
		case "desired":
			h.Status.DesiredReplicas = number(t, value)
		default:
			t.Fatalf("field %q", f)
		}
	}
}

func parseMetric(t *testing.T, f []string) autoscalingv2.MetricSpec {
	var target autoscalingv2.MetricTarget
	key, value, _ := strings.Cut(f[len(f)-1], "=")
	switch key {
	case "utilization":
		target.Type, target.AverageUtilization = autoscalingv2.UtilizationMetricType, new(number(t, value))
	case "average":
		target.Type, target.AverageValue = autoscalingv2.AverageValueMetricType, new(resource.MustParse(value))
	case "value":
		target.Type, target.Value = autoscalingv2.ValueMetricType, new(resource.MustParse(value))
	}
	id := autoscalingv2.MetricIdentifier{}
	if len(f) > 1 {
		id.Name = f[1]
	}
	switch f[0] {
	case "resource":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceName(f[1]), Target: target}}
	case "container":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType,
			ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: corev1.ResourceName(f[1]), Container: f[2],
				Target: target}}
	case "pods":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType,
			Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: target}}
	case "object":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType,
			Object: &autoscalingv2.ObjectMetricSource{Metric: id, Target: target,
				DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Ingress", Name: "front"}}}
	case "external":
		return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType,
			External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: target}}
	}
	return autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(f[0])} // a type whose part is missing
}

func parseRules(t *testing.T, fields []string) *autoscalingv2.HPAScalingRules {
	r := &autoscalingv2.HPAScalingRules{}
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "window":
			r.StabilizationWindowSeconds = new(number(t, value))
		case "select":
			r.SelectPolicy = new(autoscalingv2.ScalingPolicySelect(value))
		case "tolerance":
			r.Tolerance = new(resource.MustParse(value))
		case "pods", "percent":
			v, period, _ := strings.Cut(value, "/")
			p := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: number(t, v),
				PeriodSeconds: number(t, period)}
			if key == "percent" {
				p.Type = autoscalingv2.PercentScalingPolicy
			}
			r.Policies = append(r.Policies, p)
		case "nothing":
			return nil
		default:
			t.Fatalf("field %q", f)
		}
	}
	return r
}

// parsePod returns a Pod that has been running and ready for an hour, unless its fields say otherwise.
func parsePod(t *testing.T, f []string) *corev1.Pod {
	hour := metav1.NewTime(now.Add(-time.Hour))
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: f[0]}, Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &hour}}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: hour}
	has := true
	for _, x := range f[1:] {
		key, value, _ := strings.Cut(x, "=")
		switch key {
		case "request":
			p.Spec.Containers = append(p.Spec.Containers, container("app", value))
		case "beside":
			c := container("side", value)
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c, corev1.Container{Name: "once"})
		case "whole":
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(value)}}
		case "nothing":
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "app"})
		case "phase":
			p.Status.Phase = corev1.PodPhase(value)
		case "deleting":
			p.DeletionTimestamp = &hour
		case "start":
			p.Status.StartTime = new(metav1.NewTime(now.Add(-duration(t, value))))
		case "ready":
			ready.LastTransitionTime = metav1.NewTime(now.Add(-duration(t, value)))
		case "unready":
			ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(now.Add(-duration(t, value)))
		case "unknown":
			has = false
		default:
			t.Fatalf("field %q", x)
		}
	}
	if has {
		p.Status.Conditions = []corev1.PodCondition{ready}
	}
	return p
}

func container(name, cpu string) corev1.Container {
	return corev1.Container{Name: name,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse("100Mi")}}}
}

// parseReading reads "a=50m b=60m" for Pods, "values 5 7" or "error WORDS".
func parseReading(t *testing.T, line string) (r measurement) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "error":
		return measurement{err: errors.New(rest)}
	case "values":
		for f := range strings.FieldsSeq(rest) {
			q := resource.MustParse(f)
			r.values = append(r.values, q.MilliValue())
		}
		return r
	}
	r.pods = map[string]Sample{}
	for f := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(f, "=")
		q := resource.MustParse(value)
		r.pods[name] = Sample{Value: q.MilliValue(), At: now.Add(-10 * time.Second), Window: 30 * time.Second}
	}
	return r
}

func describe(p *plan) string {
	var out []string
	printf := func(format string, args ...any) {
		out = append(out, strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
	s := &p.hpa.Status
	if p.rescale {
		printf("scale %d -> %d", p.from, p.to)
	}
	printf("status current=%d desired=%d scaled=%v", s.CurrentReplicas, s.DesiredReplicas, s.LastScaleTime != nil)
	for _, m := range s.CurrentMetrics {
		printf("measured %s", describeMetric(&m))
	}
	for _, c := range s.Conditions {
		printf("condition %s %s %s %q", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, e := range p.events {
		printf("event %s %s %s", e.kind, e.reason, e.message)
	}
	marks := func(what string, list []timedCount) {
		for _, m := range list {
			printf("remembers %s %d, %v ago", what, m.n, now.Sub(m.at))
		}
	}
	marks("recommended", p.history.recommendations)
	marks("grew", p.history.grown)
	marks("shrank", p.history.shrunk)
	return strings.Join(out, "\n")
}

func describeMetric(m *autoscalingv2.MetricStatus) string {
	value := func(v autoscalingv2.MetricValueStatus) (out string) {
		if v.AverageUtilization != nil {
			out += fmt.Sprintf(" %d%%", *v.AverageUtilization)
		}
		if v.AverageValue != nil {
			out += " average " + v.AverageValue.String()
		}
		if v.Value != nil {
			out += " " + v.Value.String()
		}
		return out
	}
	switch {
	case m.Resource != nil:
		return string(m.Resource.Name) + value(m.Resource.Current)
	case m.ContainerResource != nil:
		return string(m.ContainerResource.Name) + " of " + m.ContainerResource.Container + value(m.ContainerResource.Current)
	case m.Pods != nil:
		return m.Pods.Metric.Name + " of pods" + value(m.Pods.Current)
	case m.Object != nil:
		return m.Object.Metric.Name + " of " + m.Object.DescribedObject.Name + value(m.Object.Current)
	case m.External != nil:
		return m.External.Metric.Name + " outside" + value(m.External.Current)
	}
	return "nothing"
}
