package podautoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// limits limit the change of an autoscaler in one step.
type limits struct {
	minReplicas, maxReplicas int32
	current                  int32
	options                  *Options
	now                      time.Time
}

// recommendation is a number of Pods, with the reason and message of a condition.
type recommendation struct {
	n               int32
	reason, message string
}

const (
	lowerBefore  = "recent recommendations were lower than current one, applying the lowest recent recommendation"
	higherBefore = "recent recommendations were higher than current one, applying the highest recent recommendation"
	tooMany      = "the desired replica count is more than the maximum replica count"
	tooFew       = "the desired replica count is less than the minimum replica count"
	tooFast      = "the desired replica count is increasing faster than the maximum scale rate"
	tooFastDown  = "the desired replica count is decreasing faster than the maximum scale rate"
	inRange      = "the desired count is within the acceptable range"
)

// stabilize returns the highest recommendation in the stabilization window, and remembers the new one.
func (b *limits) stabilize(m history, want int32) (history, recommendation) {
	m.recommendations = newerThan(m.recommendations, b.now.Add(-b.options.Window))
	out := recommendation{n: want}
	for _, r := range m.recommendations {
		out.n = max(out.n, r.n)
	}
	if out.n != want {
		out.reason, out.message = "ScaleDownStabilized", higherBefore
	}
	m.recommendations = append(m.recommendations, timedCount{want, b.now})
	return m, out
}

// limitDefault limits an autoscaler without scaling rules: to its minimum and maximum, and to at most double the Pods, or four.
func (b *limits) limitDefault(want int32) recommendation {
	top, reason, message := b.maxReplicas, "TooManyReplicas", tooMany
	if double := ceil(max(2*float64(b.current), 4)); top > double {
		top, reason, message = double, "ScaleUpLimit", tooFast
	}
	switch {
	case want < b.minReplicas:
		return recommendation{b.minReplicas, "TooFewReplicas", tooFew}
	case want > top:
		return recommendation{top, reason, message}
	}
	return recommendation{want, "DesiredWithinRange", inRange}
}

// directionRules are the scaling rules of one direction, with defaults for what is not set.
type directionRules struct {
	window   time.Duration
	choose   autoscalingv2.ScalingPolicySelect
	policies []autoscalingv2.HPAScalingPolicy
}

func newDirectionRules(r *autoscalingv2.HPAScalingRules, window time.Duration, policies ...autoscalingv2.HPAScalingPolicy) directionRules {
	out := directionRules{window: window, choose: autoscalingv2.MaxChangePolicySelect, policies: policies}
	if r == nil {
		return out
	}
	if r.StabilizationWindowSeconds != nil {
		out.window = time.Duration(*r.StabilizationWindowSeconds) * time.Second
	}
	if r.SelectPolicy != nil {
		out.choose = *r.SelectPolicy
	}
	if len(r.Policies) > 0 {
		out.policies = r.Policies
	}
	return out
}

// scalingRules returns the rules of an autoscaler for scaling up and down.
func (b *limits) scalingRules(h *autoscalingv2.HorizontalPodAutoscalerBehavior) (up, down directionRules) {
	double := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	four := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	return newDirectionRules(h.ScaleUp, 0, four, double), newDirectionRules(h.ScaleDown, b.options.Window, double)
}

// stabilizeByRules stabilizes with a window for each direction: scaling up uses the lowest recommendation in one window, scaling down
// the highest in the other.
func (b *limits) stabilizeByRules(m history, up, down directionRules, want int32) (history, recommendation) {
	low, high := want, want
	for _, r := range m.recommendations {
		if r.at.After(b.now.Add(-up.window)) {
			low = min(low, r.n)
		}
		if r.at.After(b.now.Add(-down.window)) {
			high = max(high, r.n)
		}
	}
	out := recommendation{min(max(b.current, low), high), "ScaleDownStabilized", higherBefore}
	if want >= b.current {
		out.reason, out.message = "ScaleUpStabilized", lowerBefore
	}
	m.recommendations = append(newerThan(m.recommendations, b.now.Add(-max(up.window, down.window))), timedCount{want, b.now})
	return m, out
}

// limitByRules limits an autoscaler with scaling rules: to its minimum and maximum, and to the changes that its policies allow.
func (b *limits) limitByRules(m history, up, down directionRules, want int32) recommendation {
	switch {
	case want > b.current:
		top := max(b.current, up.limit(m, b, 1))
		if b.maxReplicas > top {
			if want > top {
				return recommendation{top, "ScaleUpLimit", tooFast}
			}
		} else if want > b.maxReplicas {
			return recommendation{b.maxReplicas, "TooManyReplicas", tooMany}
		}
	case want < b.current:
		bottom := min(b.current, down.limit(m, b, -1))
		if b.minReplicas < bottom {
			if want < bottom {
				return recommendation{bottom, "ScaleDownLimit", tooFastDown}
			}
		} else if want < b.minReplicas {
			return recommendation{b.minReplicas, "TooFewReplicas", tooFew}
		}
	}
	return recommendation{want, "DesiredWithinRange", inRange}
}

// limit returns the number of Pods that the policies of a direction allow: 1 is up, -1 is down. A policy counts from the
// number of Pods at the beginning of its period.
func (r *directionRules) limit(m history, b *limits, direction int32) int32 {
	if r.choose == autoscalingv2.DisabledPolicySelect {
		return b.current
	}
	var best int32
	for i, p := range r.policies {
		begin := b.current - changedReplicas(m.grown, p.PeriodSeconds, b.now) + changedReplicas(m.shrunk, p.PeriodSeconds, b.now)
		goal := float64(begin) + float64(direction)*float64(p.Value)
		if p.Type == autoscalingv2.PercentScalingPolicy {
			goal = float64(begin) * (1 + float64(direction)*float64(p.Value)/100)
		}
		n := roundReplicas(goal, direction)
		// The smallest change is the lower goal upwards, and the higher one downwards.
		smallest := r.choose == autoscalingv2.MinChangePolicySelect
		if i == 0 || (direction > 0) != smallest && n > best || (direction > 0) == smallest && n < best {
			best = n
		}
	}
	return best
}

// roundReplicas rounds so that there is a change: up when scaling up, and towards zero when scaling down.
func roundReplicas(f float64, direction int32) int32 {
	if direction > 0 {
		return ceil(f)
	}
	return int32(max(math.MinInt32, min(math.MaxInt32, math.Trunc(f))))
}
