package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// maxTries bounds the attempts to write a scale after conflicts.
const maxTries = 5

type reconciler struct {
	metrics   Metrics
	resources Mapper
	options   Options
	histories *histories
}

// reconcile brings the workload of one autoscaler closer to its target. Errors are reported in the status and by Events, and
// retried after the period and not sooner, because reading metrics is expensive.
func (l *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	h, found := control.Get[*autoscalingv2.HorizontalPodAutoscaler](c, gr.HorizontalPodAutoscalers, k.Namespace, k.Name)
	if !found {
		l.histories.forget(k)
		return 0, nil
	}
	now := time.Now()
	m := l.histories.get(k, h.UID)
	scale, on, err := l.target(ctx, c, h)
	if err != nil {
		return l.options.Period, writeStatus(ctx, c, h, failedScalePlan(h, m, err, now))
	}
	f := &decisionInput{hpa: h, scale: scale, history: m, options: &l.options, now: now}
	if needsMetrics(h, scale.Spec.Replicas) {
		l.collectMetrics(ctx, c, k, f)
	}
	p := decide(f)
	if p.rescale {
		p.recordRescale(rescale(ctx, c, on, scale, p.to))
	}
	l.histories.put(k, p.history)
	return l.options.Period, writeStatus(ctx, c, h, p)
}

// target reads the scale of an autoscaler's workload.
func (l *reconciler) target(ctx context.Context, c *control.Cluster, h *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.Scale,
	schema.GroupResource, error) {
	ref, none := &h.Spec.ScaleTargetRef, schema.GroupResource{}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, none, err
	}
	resources, err := l.resources(schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if err != nil {
		return nil, none, err
	}
	first := errors.New("unrecognized resource")
	for i, on := range resources {
		o, err := c.Get(ctx, on, h.Namespace, ref.Name, "scale")
		if scale, ok := o.(*autoscalingv1.Scale); ok && err == nil {
			return scale, on, nil
		} else if err == nil {
			err = fmt.Errorf("%s has a scale of the type %T", on, o)
		}
		if i == 0 {
			first = err
		}
	}
	return nil, none, first
}

// collectMetrics reads the metrics of an autoscaler, and collects its Pods.
func (l *reconciler) collectMetrics(ctx context.Context, c *control.Cluster, k control.Key, f *decisionInput) {
	selector, err := labels.Parse(f.scale.Status.Selector)
	if err != nil || f.scale.Status.Selector == "" {
		return
	}
	f.history.selector = selector
	for p := range control.List[*corev1.Pod](c, gr.Pods, k.Namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			f.pods = append(f.pods, p)
		}
	}
	exists := func(other control.Key, uid types.UID) bool {
		o, found := c.View(gr.HorizontalPodAutoscalers).Get(other.Namespace, other.Name)
		return found && o.GetUID() == uid
	}
	if rivals := l.histories.otherAutoscalers(k, f.pods, exists); len(rivals) > 0 {
		f.otherAutoscalers = append(rivals, k.Namespace+"/"+k.Name)
		slices.Sort(f.otherAutoscalers)
		return
	}
	for i := range f.hpa.Spec.Metrics {
		f.measurements = append(f.measurements, read(ctx, l.metrics, k.Namespace, selector, &f.hpa.Spec.Metrics[i]))
	}
}

// rescale writes the number of Pods. It retries when the target has changed meanwhile.
func rescale(ctx context.Context, c *control.Cluster, on schema.GroupResource, scale *autoscalingv1.Scale, to int32) error {
	for i := 1; ; i++ {
		next := scale.DeepCopy()
		next.Spec.Replicas = to
		_, err := c.Update(ctx, on, next, "scale")
		if err == nil || !apierrors.IsConflict(err) || i == maxTries {
			return err
		}
		if o, getErr := c.Get(ctx, on, scale.Namespace, scale.Name, "scale"); getErr == nil {
			if s, ok := o.(*autoscalingv1.Scale); ok {
				scale = s
			}
		}
	}
}

// writeStatus writes the status if it has changed, and records the Events.
func writeStatus(ctx context.Context, c *control.Cluster, h *autoscalingv2.HorizontalPodAutoscaler, p *plan) error {
	for _, e := range p.events {
		c.Event(h, e.kind, e.reason, "%s", e.message)
	}
	if apiequality.Semantic.DeepEqual(h.Status, p.hpa.Status) {
		return nil
	}
	if _, err := c.Update(ctx, gr.HorizontalPodAutoscalers, p.hpa, "status"); err != nil {
		c.Event(h, corev1.EventTypeWarning, "FailedUpdateStatus", "%s", err.Error())
		return fmt.Errorf("failed to update status for %s: %w", h.Name, err)
	}
	return nil
}
