package autoscale

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// facts are all that a decision is made from.
type facts struct {
	hpa    *autoscalingv2.HorizontalPodAutoscaler
	scale  *autoscalingv1.Scale
	memory memory
	// pods are those of the workload, and rivals other autoscalers that want them too.
	pods   []*corev1.Pod
	rivals []string
	// readings are of the metrics, one each; nobody measures if measured says no.
	readings []reading
	options  *Options
	now      time.Time
}

// plan is what comes of a look.
type plan struct {
	// hpa is a copy with its new status.
	hpa    *autoscalingv2.HorizontalPodAutoscaler
	memory memory
	// rescale says to change the workload from one number of Pods to another.
	rescale  bool
	from, to int32
	before   int32 // what was desired so far
	reason   string
	metrics  []autoscalingv2.MetricStatus
	events   []event
	now      time.Time
}

type event struct{ kind, reason, message string }

const (
	able    = autoscalingv2.AbleToScale
	active  = autoscalingv2.ScalingActive
	limited = autoscalingv2.ScalingLimited
	zero    = autoscalingv2.ScaledToZero
)

func begin(h *autoscalingv2.HorizontalPodAutoscaler, m memory, now time.Time) *plan {
	return &plan{hpa: h.DeepCopy(), memory: m, before: h.Status.DesiredReplicas, now: now}
}

// set stores a condition. It changes in place, so that the order stays.
func (p *plan) set(t autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	list := p.hpa.Status.Conditions
	at := -1
	for i := range list {
		if list[i].Type == t {
			at = i
		}
	}
	if at < 0 {
		list, at = append(list, autoscalingv2.HorizontalPodAutoscalerCondition{Type: t}), len(list)
	}
	c := &list[at]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(p.now)
	}
	c.Status, c.Reason, c.Message = status, reason, message
	p.hpa.Status.Conditions = list
}

func (p *plan) warn(reason, message string) {
	p.events = append(p.events, event{corev1.EventTypeWarning, reason, message})
}

// lost is the plan when the scale of the target could not be had.
func lost(h *autoscalingv2.HorizontalPodAutoscaler, m memory, err error, now time.Time) *plan {
	p := begin(h, m, now)
	p.warn("FailedGetScale", err.Error())
	p.set(able, corev1.ConditionFalse, "FailedGetScale", fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err))
	return p
}

func least(h *autoscalingv2.HorizontalPodAutoscaler) int32 {
	if h.Spec.MinReplicas == nil {
		return 1
	}
	return *h.Spec.MinReplicas
}

// fromZero says that the workload has no Pods because the autoscaler took them, and not a person. sensed says that there
// are metrics that need no Pods.
func fromZero(h *autoscalingv2.HorizontalPodAutoscaler) (took, sensed bool) {
	for _, c := range h.Status.Conditions {
		took = took || c.Type == zero && c.Status == corev1.ConditionTrue
	}
	for _, m := range h.Spec.Metrics {
		sensed = sensed || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	return took, sensed
}

// measured says that the number of Pods depends on the metrics, and not on the bounds alone.
func measured(h *autoscalingv2.HorizontalPodAutoscaler, current int32) bool {
	if current == 0 {
		took, sensed := fromZero(h)
		return took && (least(h) != 0 || sensed)
	}
	return current <= h.Spec.MaxReplicas && current >= least(h)
}

// decide says what to do about an autoscaler.
func decide(f *facts) *plan {
	p := begin(f.hpa, f.memory, f.now)
	current := f.scale.Spec.Replicas
	p.from, p.to = current, current
	p.set(able, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	if p.memory.recommendations == nil {
		p.memory.recommendations = []mark{{current, f.now}}
	}
	switch {
	case measured(f.hpa, current):
		if err := p.follow(f); err != nil {
			p.note(p.before)
			p.warn("FailedComputeMetricsReplicas", err.Error())
			return p
		}
	case current == 0:
		p.set(active, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
	case current > f.hpa.Spec.MaxReplicas:
		p.to, p.reason = f.hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	default:
		p.to, p.reason = least(f.hpa), belowMin
	}
	p.rescale = p.to != current
	p.note(p.to)
	return p
}

const belowMin = "Current number of replicas below Spec.MinReplicas"

// note writes the numbers into the status.
func (p *plan) note(desired int32) {
	s := &p.hpa.Status
	p.hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: p.from, DesiredReplicas: desired, LastScaleTime: s.LastScaleTime, CurrentMetrics: p.metrics, Conditions: s.Conditions,
		ObservedGeneration: new(p.hpa.Generation),
	}
}

// follow sets the number of Pods by the metrics.
func (p *plan) follow(f *facts) error {
	if err := p.choose(f.scale.Status.Selector, f.rivals); err != nil {
		return err
	}
	want, name, err := p.combine(f)
	if err != nil {
		return err
	}
	switch {
	case want > p.from:
		p.reason = name + " above target"
	case want < p.from:
		p.reason = "All metrics below target"
	}
	p.to = p.restrain(f, want)
	if took, _ := fromZero(f.hpa); p.from == 0 && took && p.to <= least(f.hpa) {
		p.to = least(f.hpa)
		p.reason = cmp.Or(p.reason, belowMin)
	}
	return nil
}

// choose makes sure that the Pods are known, and nobody else's.
func (p *plan) choose(selector string, rivals []string) error {
	fail := func(reason, err, condition string) error {
		p.warn(reason, err)
		p.set(active, corev1.ConditionFalse, condition, err)
		return errors.New(err)
	}
	if selector == "" {
		err := fail("SelectorRequired", "selector is required", "InvalidSelector")
		p.set(active, corev1.ConditionFalse, "InvalidSelector", "the HPA target's scale is missing a selector")
		return err
	}
	if _, err := labels.Parse(selector); err != nil {
		return fail("InvalidSelector", fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err), "InvalidSelector")
	}
	if len(rivals) > 0 {
		return fail("AmbiguousSelector", fmt.Sprintf("pods by selector %v are controlled by more than one HPA (e.g. %v)", selector, rivals), "AmbiguousSelector")
	}
	return nil
}

// combine takes the highest of what the metrics propose. Metrics that fail are not in the way of growing, but of
// shrinking: they might have asked for more.
func (p *plan) combine(f *facts) (want int32, name string, err error) {
	s := &scene{scale: f.scale, pods: f.pods, within: tolerances(f.hpa, f.options.Tolerance), options: f.options, now: f.now}
	specs := f.hpa.Spec.Metrics
	if len(specs) == 0 || len(f.readings) != len(specs) {
		return 0, "", errors.New("no metrics to scale by")
	}
	p.metrics = make([]autoscalingv2.MetricStatus, len(specs))
	var first *failure
	failed := 0
	for i := range specs {
		got, bad := s.propose(&specs[i], f.readings[i])
		if bad != nil {
			p.warn(bad.reason, bad.err.Error())
			if failed++; first == nil {
				first = bad
			}
			continue
		}
		p.metrics[i] = got.status
		if want == 0 || got.replicas > want {
			want, name = got.replicas, got.name
		}
	}
	if failed == len(specs) || failed > 0 && want < p.from {
		p.set(active, corev1.ConditionFalse, first.reason, fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.err))
		return 0, "", fmt.Errorf("invalid metrics (%v invalid out of %v), first error is: %w", failed, len(specs), first.outer)
	}
	p.set(active, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+name)
	return want, name, nil
}

// restrain applies windows, policies and bounds.
func (p *plan) restrain(f *facts, want int32) int32 {
	b := &bounds{least: least(f.hpa), most: f.hpa.Spec.MaxReplicas, current: p.from, options: f.options, now: f.now}
	var calm, end verdict
	if f.hpa.Spec.Behavior == nil {
		p.memory, calm = b.steady(p.memory, want)
		end = b.limit(calm.n)
	} else {
		up, down := b.directions(f.hpa.Spec.Behavior)
		p.memory, calm = b.steadyBy(p.memory, up, down, want)
		end = b.limitBy(p.memory, up, down, calm.n)
	}
	if calm.n != want {
		p.set(able, corev1.ConditionTrue, calm.reason, calm.message)
	} else {
		p.set(able, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size")
	}
	status := corev1.ConditionFalse
	if end.n != calm.n {
		status = corev1.ConditionTrue
	}
	p.set(limited, status, end.reason, end.message)
	return end.n
}

// done is the plan after the workload was changed, or could not be.
func (p *plan) done(err error) {
	if err != nil {
		p.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", p.to, p.reason, err))
		p.set(able, corev1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
		p.hpa.Status.DesiredReplicas = p.before
		return
	}
	p.set(able, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", p.to))
	p.events = append(p.events, event{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", p.to, p.reason)})
	p.memory = p.memory.scaled(p.hpa, p.from, p.to, p.now)
	if _, sensed := fromZero(p.hpa); p.to == 0 && least(p.hpa) == 0 && sensed {
		p.set(zero, corev1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	} else {
		p.set(zero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
	p.hpa.Status.LastScaleTime = new(metav1.NewTime(p.now))
}
