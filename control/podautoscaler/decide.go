package podautoscaler

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

// decisionInput is the input of a decision.
type decisionInput struct {
	hpa     *autoscalingv2.HorizontalPodAutoscaler
	scale   *autoscalingv1.Scale
	history history
	// pods are those of the workload, and otherAutoscalers the names of others that select them too.
	pods             []*corev1.Pod
	otherAutoscalers []string
	// measurements has one measurement for each metric; it is empty if needsMetrics returns false.
	measurements []measurement
	options      *Options
	now          time.Time
}

// plan is the result of a decision.
type plan struct {
	// hpa is a copy with its new status.
	hpa     *autoscalingv2.HorizontalPodAutoscaler
	history history
	// rescale is true if the workload is to be scaled.
	rescale  bool
	from, to int32
	before   int32 // the desired replicas in the status so far
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

func newPlan(h *autoscalingv2.HorizontalPodAutoscaler, m history, now time.Time) *plan {
	return &plan{hpa: h.DeepCopy(), history: m, before: h.Status.DesiredReplicas, now: now}
}

// setCondition stores a condition in place, so that the order is kept.
func (p *plan) setCondition(t autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
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

// failedScalePlan returns the plan for when the scale of the target could not be read.
func failedScalePlan(h *autoscalingv2.HorizontalPodAutoscaler, m history, err error, now time.Time) *plan {
	p := newPlan(h, m, now)
	p.warn("FailedGetScale", err.Error())
	p.setCondition(able, corev1.ConditionFalse, "FailedGetScale",
		fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err))
	return p
}

func minReplicas(h *autoscalingv2.HorizontalPodAutoscaler) int32 {
	if h.Spec.MinReplicas == nil {
		return 1
	}
	return *h.Spec.MinReplicas
}

// fromZero reports whether the autoscaler itself, and not a user, scaled the workload to zero, and whether it has metrics that
// need no Pods.
func fromZero(h *autoscalingv2.HorizontalPodAutoscaler) (byAutoscaler, hasPodless bool) {
	for _, c := range h.Status.Conditions {
		byAutoscaler = byAutoscaler || c.Type == zero && c.Status == corev1.ConditionTrue
	}
	for _, m := range h.Spec.Metrics {
		hasPodless = hasPodless || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	return byAutoscaler, hasPodless
}

// needsMetrics reports whether the number of Pods depends on the metrics, and not on the minimum and maximum alone.
func needsMetrics(h *autoscalingv2.HorizontalPodAutoscaler, current int32) bool {
	if current == 0 {
		byAutoscaler, hasPodless := fromZero(h)
		return byAutoscaler && (minReplicas(h) != 0 || hasPodless)
	}
	return current <= h.Spec.MaxReplicas && current >= minReplicas(h)
}

// decide returns what to do with the workload of an autoscaler.
func decide(f *decisionInput) *plan {
	p := newPlan(f.hpa, f.history, f.now)
	current := f.scale.Spec.Replicas
	p.from, p.to = current, current
	p.setCondition(able, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	if p.history.recommendations == nil {
		p.history.recommendations = []timedCount{{current, f.now}}
	}
	switch {
	case needsMetrics(f.hpa, current):
		if err := p.followMetrics(f); err != nil {
			p.setStatus(p.before)
			p.warn("FailedComputeMetricsReplicas", err.Error())
			return p
		}
	case current == 0:
		p.setCondition(active, corev1.ConditionFalse, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
	case current > f.hpa.Spec.MaxReplicas:
		p.to, p.reason = f.hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	default:
		p.to, p.reason = minReplicas(f.hpa), belowMin
	}
	p.rescale = p.to != current
	p.setStatus(p.to)
	return p
}

const belowMin = "Current number of replicas below Spec.MinReplicas"

// setStatus sets the numbers in the status.
func (p *plan) setStatus(desired int32) {
	s := &p.hpa.Status
	p.hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: p.from, DesiredReplicas: desired, LastScaleTime: s.LastScaleTime, CurrentMetrics: p.metrics,
		Conditions:         s.Conditions,
		ObservedGeneration: new(p.hpa.Generation),
	}
}

// followMetrics computes the number of Pods from the metrics.
func (p *plan) followMetrics(f *decisionInput) error {
	if err := p.checkSelector(f.scale.Status.Selector, f.otherAutoscalers); err != nil {
		return err
	}
	want, name, err := p.combineMetrics(f)
	if err != nil {
		return err
	}
	switch {
	case want > p.from:
		p.reason = name + " above target"
	case want < p.from:
		p.reason = "All metrics below target"
	}
	p.to = p.applyLimits(f, want)
	if byAutoscaler, _ := fromZero(f.hpa); p.from == 0 && byAutoscaler && p.to <= minReplicas(f.hpa) {
		p.to = minReplicas(f.hpa)
		p.reason = cmp.Or(p.reason, belowMin)
	}
	return nil
}

// checkSelector returns an error if the selector is invalid, or other autoscalers select the same Pods.
func (p *plan) checkSelector(selector string, rivals []string) error {
	fail := func(reason, err, condition string) error {
		p.warn(reason, err)
		p.setCondition(active, corev1.ConditionFalse, condition, err)
		return errors.New(err)
	}
	if selector == "" {
		err := fail("SelectorRequired", "selector is required", "InvalidSelector")
		p.setCondition(active, corev1.ConditionFalse, "InvalidSelector", "the HPA target's scale is missing a selector")
		return err
	}
	if _, err := labels.Parse(selector); err != nil {
		return fail("InvalidSelector", fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err), "InvalidSelector")
	}
	if len(rivals) > 0 {
		return fail("AmbiguousSelector", fmt.Sprintf("pods by selector %v are controlled by more than one HPA (e.g. %v)", selector, rivals),
			"AmbiguousSelector")
	}
	return nil
}

// combineMetrics returns the highest number of Pods that a metric proposes. If some metrics fail, the workload may still be scaled up
// but not down, because they might have proposed more.
func (p *plan) combineMetrics(f *decisionInput) (want int32, name string, err error) {
	s := &evaluation{scale: f.scale, pods: f.pods, tolerance: tolerances(f.hpa, f.options.Tolerance), options: f.options, now: f.now}
	specs := f.hpa.Spec.Metrics
	if len(specs) == 0 || len(f.measurements) != len(specs) {
		return 0, "", errors.New("no metrics to scale by")
	}
	p.metrics = make([]autoscalingv2.MetricStatus, len(specs))
	var first *failure
	failed := 0
	for i := range specs {
		got, bad := s.propose(&specs[i], f.measurements[i])
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
		p.setCondition(active, corev1.ConditionFalse, first.reason,
			fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.err))
		return 0, "", fmt.Errorf("invalid metrics (%v invalid out of %v), first error is: %w", failed, len(specs), first.outer)
	}
	p.setCondition(active, corev1.ConditionTrue, "ValidMetricFound",
		"the HPA was able to successfully calculate a replica count from "+name)
	return want, name, nil
}

// applyLimits applies stabilization windows, scaling policies, and the minimum and maximum.
func (p *plan) applyLimits(f *decisionInput, want int32) int32 {
	b := &limits{minReplicas: minReplicas(f.hpa), maxReplicas: f.hpa.Spec.MaxReplicas, current: p.from, options: f.options, now: f.now}
	var stable, end recommendation
	if f.hpa.Spec.Behavior == nil {
		p.history, stable = b.stabilize(p.history, want)
		end = b.limitDefault(stable.n)
	} else {
		up, down := b.scalingRules(f.hpa.Spec.Behavior)
		p.history, stable = b.stabilizeByRules(p.history, up, down, want)
		end = b.limitByRules(p.history, up, down, stable.n)
	}
	if stable.n != want {
		p.setCondition(able, corev1.ConditionTrue, stable.reason, stable.message)
	} else {
		p.setCondition(able, corev1.ConditionTrue, "ReadyForNewScale", "recommended size matches current size")
	}
	status := corev1.ConditionFalse
	if end.n != stable.n {
		status = corev1.ConditionTrue
	}
	p.setCondition(limited, status, end.reason, end.message)
	return end.n
}

// recordRescale updates the plan after the workload was scaled, or could not be.
func (p *plan) recordRescale(err error) {
	if err != nil {
		p.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", p.to, p.reason, err))
		p.setCondition(able, corev1.ConditionFalse, "FailedUpdateScale",
			fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
		p.hpa.Status.DesiredReplicas = p.before
		return
	}
	p.setCondition(able, corev1.ConditionTrue, "SucceededRescale",
		fmt.Sprintf("the HPA controller was able to update the target scale to %d", p.to))
	p.events = append(p.events, event{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", p.to, p.reason)})
	p.history = p.history.afterRescale(p.hpa, p.from, p.to, p.now)
	if _, hasPodless := fromZero(p.hpa); p.to == 0 && minReplicas(p.hpa) == 0 && hasPodless {
		p.setCondition(zero, corev1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	} else {
		p.setCondition(zero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
	p.hpa.Status.LastScaleTime = new(metav1.NewTime(p.now))
}
