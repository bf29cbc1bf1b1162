package autoscale

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
	"proa.dev/kinds/gr"
)

// tries is how often a scale is written that others write too.
const tries = 5

type loop struct {
	metrics   Metrics
	resources Mapper
	options   Options
	memories  *memories
}

// reconcile looks at one autoscaler. What goes wrong is told in its status and by Events, and tried again at the next
// turn: no sooner, as measuring costs.
func (l *loop) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	h, found := control.Get[*autoscalingv2.HorizontalPodAutoscaler](c, gr.HorizontalPodAutoscalers, k.Namespace, k.Name)
	if !found {
		l.memories.forget(k)
		return 0, nil
	}
	now := time.Now()
	m := l.memories.get(k, h.UID)
	scale, on, err := l.target(ctx, c, h)
	if err != nil {
		return l.options.Period, tell(ctx, c, h, lost(h, m, err, now))
	}
	f := &facts{hpa: h, scale: scale, memory: m, options: &l.options, now: now}
	if measured(h, scale.Spec.Replicas) {
		l.measure(ctx, c, k, f)
	}
	p := decide(f)
	if p.rescale {
		p.done(rescale(ctx, c, on, scale, p.to))
	}
	l.memories.put(k, p.memory)
	return l.options.Period, tell(ctx, c, h, p)
}

// target finds the scale of what an autoscaler scales.
func (l *loop) target(ctx context.Context, c *control.Cluster, h *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.Scale, schema.GroupResource, error) {
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

// measure gathers what the metrics need.
func (l *loop) measure(ctx context.Context, c *control.Cluster, k control.Key, f *facts) {
	selector, err := labels.Parse(f.scale.Status.Selector)
	if err != nil || f.scale.Status.Selector == "" {
		return
	}
	f.memory.selector = selector
	for p := range control.List[*corev1.Pod](c, gr.Pods, k.Namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			f.pods = append(f.pods, p)
		}
	}
	lives := func(other control.Key, uid types.UID) bool {
		o, found := c.View(gr.HorizontalPodAutoscalers).Get(other.Namespace, other.Name)
		return found && o.GetUID() == uid
	}
	if rivals := l.memories.rivals(k, f.pods, lives); len(rivals) > 0 {
		f.rivals = append(rivals, k.Namespace+"/"+k.Name)
		slices.Sort(f.rivals)
		return
	}
	for i := range f.hpa.Spec.Metrics {
		f.readings = append(f.readings, read(ctx, l.metrics, k.Namespace, selector, &f.hpa.Spec.Metrics[i]))
	}
}

// rescale writes the number of Pods, whatever else of the target changed meanwhile.
func rescale(ctx context.Context, c *control.Cluster, on schema.GroupResource, scale *autoscalingv1.Scale, to int32) error {
	for i := 1; ; i++ {
		next := scale.DeepCopy()
		next.Spec.Replicas = to
		_, err := c.Update(ctx, on, next, "scale")
		if err == nil || !apierrors.IsConflict(err) || i == tries {
			return err
		}
		if fresh, getErr := c.Get(ctx, on, scale.Namespace, scale.Name, "scale"); getErr == nil {
			if s, ok := fresh.(*autoscalingv1.Scale); ok {
				scale = s
			}
		}
	}
}

// tell writes the status if it is news, and the Events.
func tell(ctx context.Context, c *control.Cluster, h *autoscalingv2.HorizontalPodAutoscaler, p *plan) error {
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
