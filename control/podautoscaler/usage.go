package podautoscaler

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	helpers "k8s.io/component-helpers/resource"

	"proa.dev/control/lib/workload"
)

// tolerance is how far usage may be below and above its target without a change.
type tolerance struct{ down, up float64 }

func (t tolerance) covers(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// tolerances returns the tolerance of an autoscaler, or the default.
func tolerances(h *autoscalingv2.HorizontalPodAutoscaler, defaultTolerance float64) tolerance {
	t := tolerance{defaultTolerance, defaultTolerance}
	if b := h.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

// ceil rounds up to a number of Pods between 0 and the largest int32.
func ceil(f float64) int32 {
	switch {
	case math.IsNaN(f) || f <= 0:
		return 0
	case f >= math.MaxInt32:
		return math.MaxInt32
	}
	return int32(math.Ceil(f))
}

// podGroups divides Pods by how their samples are used.
type podGroups struct {
	ready int
	// unready Pods have just started and are not typical, and missing ones have no sample. Values are assumed for both so that
	// they do not make a change larger.
	unready, missing []string
	samples          map[string]Sample
}

// groupPods divides Pods, and drops the samples of those that do not count. cpu is true for CPU usage, which is higher while a
// Pod starts.
func groupPods(pods []*corev1.Pod, samples map[string]Sample, cpu bool, o *Options, now time.Time) (podGroups, error) {
	const none = "no pods returned by selector while calculating replica count"
	if len(pods) == 0 {
		return podGroups{}, errors.New(none)
	}
	g := podGroups{samples: maps.Clone(samples)}
	for _, p := range pods {
		s, measured := samples[p.Name]
		switch {
		case p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed:
			delete(g.samples, p.Name)
		case p.Status.Phase == corev1.PodPending:
			delete(g.samples, p.Name)
			g.unready = append(g.unready, p.Name)
		case !measured:
			g.missing = append(g.missing, p.Name)
		case cpu && isStarting(p, s, o, now):
			delete(g.samples, p.Name)
			g.unready = append(g.unready, p.Name)
		default:
			g.ready++
		}
	}
	if len(g.samples) == 0 {
		return podGroups{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	return g, nil
}

// isStarting reports whether the CPU usage of a Pod may be due to its start.
func isStarting(p *corev1.Pod, s Sample, o *Options, now time.Time) bool {
	c := workload.Condition(p, corev1.PodReady)
	if c == nil || p.Status.StartTime == nil {
		return true
	}
	start, changed := p.Status.StartTime.Time, c.LastTransitionTime.Time
	unready := c.Status == corev1.ConditionFalse
	if start.Add(o.Startup).After(now) {
		return unready || s.At.Before(changed.Add(s.Window))
	}
	return unready && start.Add(o.FirstReady).After(changed)
}

// ratioOf returns the ratio of usage to its target. It is called with the samples, and again with assumed values.
type ratioOf func(map[string]Sample) (float64, error)

// replicas returns the number of Pods for a ratio. guess returns the value that is assumed for a Pod without a sample when the
// workload would be scaled down.
func (g *podGroups) replicas(current int32, t tolerance, ratio ratioOf, guess func(pod string) int64) (int32, error) {
	first, err := ratio(g.samples)
	if err != nil {
		return 0, err
	}
	assumeUnready := len(g.unready) > 0 && first > 1
	if !assumeUnready && len(g.missing) == 0 {
		if t.covers(first) {
			return current, nil
		}
		return ceil(first * float64(g.ready)), nil
	}
	all := maps.Clone(g.samples)
	for _, p := range g.missing {
		switch {
		case first < 1:
			all[p] = Sample{Value: guess(p)}
		case first > 1:
			all[p] = Sample{}
		}
	}
	if assumeUnready {
		for _, p := range g.unready {
			all[p] = Sample{}
		}
	}
	second, err := ratio(all)
	if err != nil {
		return 0, err
	}
	if t.covers(second) || first < 1 && second > 1 || first > 1 && second < 1 {
		return current, nil
	}
	n := ceil(second * float64(len(all)))
	if second < 1 && n > current || second > 1 && n < current {
		return current, nil // assumed values alone must not reverse the direction
	}
	return n, nil
}

// average returns the mean of samples, and its ratio to a target.
func average(samples map[string]Sample, target int64) (ratio float64, value int64) {
	if len(samples) == 0 {
		return 0, 0
	}
	total := int64(0)
	for _, s := range samples {
		total += s.Value
	}
	value = total / int64(len(samples))
	return float64(value) / float64(target), value
}

// utilization returns the usage in percent of what the Pods request.
func utilization(samples map[string]Sample, requests map[string]int64, target int32) (ratio float64, percent int32, value int64,
	err error) {
	used, requested, n := int64(0), int64(0), int64(0)
	for name, s := range samples {
		if r, known := requests[name]; known {
			used, requested, n = used+s.Value, requested+r, n+1
		}
	}
	if requested == 0 {
		return 0, 0, 0, errors.New("no metrics returned matched known pods")
	}
	percent = int32(min(used*100/requested, math.MaxInt32))
	return float64(percent) / float64(target), percent, used / n, nil
}

// requests returns what Pods, or one container of each, request of a resource.
func requests(pods []*corev1.Pod, container string, name corev1.ResourceName) (map[string]int64, error) {
	out := map[string]int64{}
	for _, p := range pods {
		n, err := request(p, container, name)
		if err != nil {
			return nil, err
		}
		out[p.Name] = n
	}
	return out, nil
}

func request(p *corev1.Pod, container string, name corev1.ResourceName) (int64, error) {
	if container == "" && helpers.IsPodLevelRequestsSet(p) {
		q, ok := helpers.PodRequests(p, helpers.PodResourcesOptions{})[name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", name, p.Name)
		}
		return q.MilliValue(), nil
	}
	total, found := int64(0), container == ""
	add := func(c *corev1.Container) error {
		if container != "" && (container != c.Name || found) {
			return nil
		}
		q, ok := c.Resources.Requests[name]
		if !ok {
			return fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, p.Name)
		}
		total, found = total+q.MilliValue(), true
		return nil
	}
	for i := range p.Spec.Containers {
		if err := add(&p.Spec.Containers[i]); err != nil {
			return 0, err
		}
	}
	for i := range p.Spec.InitContainers { // sidecars only
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			if err := add(c); err != nil {
				return 0, err
			}
		}
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, p.Name)
	}
	return total, nil
}

// readyPods counts the running and ready Pods.
func readyPods(pods []*corev1.Pod) (n int, err error) {
	if len(pods) == 0 {
		return 0, errors.New("unable to calculate ready pods: no pods returned by selector while calculating replica count")
	}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning && workload.IsReady(p) {
			n++
		}
	}
	return n, nil
}

// sumValues returns the sum of values, or the largest int64 if it overflows.
func sumValues(values []int64) (sum int64) {
	for _, v := range values {
		if v > 0 && sum > math.MaxInt64-v {
			return math.MaxInt64
		}
		sum += v
	}
	return sum
}

func metricAndSelector(m *autoscalingv2.MetricIdentifier) (string, labels.Selector, error) {
	s, err := metav1.LabelSelectorAsSelector(m.Selector)
	return m.Name, s, err
}
