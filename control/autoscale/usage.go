package autoscale

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

	"proa.dev/control/workload"
)

// tolerance is how far usage may be off its target without a change.
type tolerance struct{ down, up float64 }

func (t tolerance) covers(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// tolerances are those of an autoscaler, or the usual.
func tolerances(h *autoscalingv2.HorizontalPodAutoscaler, usual float64) tolerance {
	t := tolerance{usual, usual}
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

// ceil rounds up to a number of Pods, whatever the number is.
func ceil(f float64) int32 {
	switch {
	case math.IsNaN(f) || f <= 0:
		return 0
	case f >= math.MaxInt32:
		return math.MaxInt32
	}
	return int32(math.Ceil(f))
}

// groups are the Pods by what their measurements are worth.
type groups struct {
	ready int
	// unready are too young to be typical, and missing are not measured. Both are guessed, so that no guess makes a
	// change bigger.
	unready, missing []string
	samples          map[string]Sample
}

// group sorts the Pods out. samples of Pods that do not count are left out. cpu says that it is about CPU, which starting
// Pods use more of.
func group(pods []*corev1.Pod, samples map[string]Sample, cpu bool, o *Options, now time.Time) (groups, error) {
	const none = "no pods returned by selector while calculating replica count"
	if len(pods) == 0 {
		return groups{}, errors.New(none)
	}
	g := groups{samples: maps.Clone(samples)}
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
		case cpu && starting(p, s, o, now):
			delete(g.samples, p.Name)
			g.unready = append(g.unready, p.Name)
		default:
			g.ready++
		}
	}
	if len(g.samples) == 0 {
		return groups{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	return g, nil
}

// starting says that what a Pod uses may come from its start.
func starting(p *corev1.Pod, s Sample, o *Options, now time.Time) bool {
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

// ratioOf is how far usage is from its target: 1 when it is there. It is asked again with guesses.
type ratioOf func(map[string]Sample) (float64, error)

// settle turns a ratio into a number of Pods. guess is the value of a Pod that is not measured when there is too much.
func (g *groups) settle(current int32, t tolerance, ratio ratioOf, guess func(pod string) int64) (int32, error) {
	first, err := ratio(g.samples)
	if err != nil {
		return 0, err
	}
	early := len(g.unready) > 0 && first > 1
	if !early && len(g.missing) == 0 {
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
	if early {
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
		return current, nil // the guesses alone must not turn the way round
	}
	return n, nil
}

// average is the mean of samples, and how far that is from a target.
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

// utilization is the usage in percent of what the Pods request.
func utilization(samples map[string]Sample, requests map[string]int64, target int32) (ratio float64, percent int32, value int64, err error) {
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

// requests are what Pods, or one container of each, request of a resource.
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
	for i := range p.Spec.InitContainers { // those that run beside the others
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

// readyPods counts the Pods that a value for all of them is shared by.
func readyPods(pods []*corev1.Pod) (n int, err error) {
	if len(pods) == 0 {
		return 0, errors.New("unable to calculate ready pods: no pods returned by selector while calculating replica count")
	}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning && workload.Ready(p) {
			n++
		}
	}
	return n, nil
}

// total adds up values, and stops at the highest number there is.
func total(values []int64) (sum int64) {
	for _, v := range values {
		if v > 0 && sum > math.MaxInt64-v {
			return math.MaxInt64
		}
		sum += v
	}
	return sum
}

func identify(m *autoscalingv2.MetricIdentifier) (string, labels.Selector, error) {
	s, err := metav1.LabelSelectorAsSelector(m.Selector)
	return m.Name, s, err
}
