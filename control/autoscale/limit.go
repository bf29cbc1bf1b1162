package autoscale

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// bounds are what an autoscaler may do in one step.
type bounds struct {
	least, most int32
	current     int32
	options     *Options
	now         time.Time
}

// verdict is a number of Pods, and why it is not another.
type verdict struct {
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

// steady holds on to the highest recommendation of the window, and remembers the new one.
func (b *bounds) steady(m memory, want int32) (memory, verdict) {
	m.recommendations = since(m.recommendations, b.now.Add(-b.options.Window))
	out := verdict{n: want}
	for _, r := range m.recommendations {
		out.n = max(out.n, r.n)
	}
	if out.n != want {
		out.reason, out.message = "ScaleDownStabilized", higherBefore
	}
	m.recommendations = append(m.recommendations, mark{want, b.now})
	return m, out
}

// limit is for autoscalers without rules of their own: between the least and the most, and no more than double, or four.
func (b *bounds) limit(want int32) verdict {
	top, reason, message := b.most, "TooManyReplicas", tooMany
	if double := ceil(max(2*float64(b.current), 4)); top > double {
		top, reason, message = double, "ScaleUpLimit", tooFast
	}
	switch {
	case want < b.least:
		return verdict{b.least, "TooFewReplicas", tooFew}
	case want > top:
		return verdict{top, reason, message}
	}
	return verdict{want, "DesiredWithinRange", inRange}
}

// rules are those of a direction. Whatever is missing is as the server would have filled it in.
type rules struct {
	window   time.Duration
	choose   autoscalingv2.ScalingPolicySelect
	policies []autoscalingv2.HPAScalingPolicy
}

func rulesOf(r *autoscalingv2.HPAScalingRules, window time.Duration, usual ...autoscalingv2.HPAScalingPolicy) rules {
	out := rules{window: window, choose: autoscalingv2.MaxChangePolicySelect, policies: usual}
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

// directions are the rules of an autoscaler for growing and shrinking.
func (b *bounds) directions(h *autoscalingv2.HorizontalPodAutoscalerBehavior) (up, down rules) {
	double := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	four := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	return rulesOf(h.ScaleUp, 0, four, double), rulesOf(h.ScaleDown, b.options.Window, double)
}

// steadyBy does as steady does, with a window for each direction: the lowest recommendation of one to grow, the highest
// of the other to shrink.
func (b *bounds) steadyBy(m memory, up, down rules, want int32) (memory, verdict) {
	low, high := want, want
	for _, r := range m.recommendations {
		if r.at.After(b.now.Add(-up.window)) {
			low = min(low, r.n)
		}
		if r.at.After(b.now.Add(-down.window)) {
			high = max(high, r.n)
		}
	}
	out := verdict{min(max(b.current, low), high), "ScaleDownStabilized", higherBefore}
	if want >= b.current {
		out.reason, out.message = "ScaleUpStabilized", lowerBefore
	}
	m.recommendations = append(since(m.recommendations, b.now.Add(-max(up.window, down.window))), mark{want, b.now})
	return m, out
}

// limitBy is for autoscalers with rules: as many in a period as the policies allow.
func (b *bounds) limitBy(m memory, up, down rules, want int32) verdict {
	switch {
	case want > b.current:
		top := max(b.current, up.furthest(m, b, 1))
		if b.most > top {
			if want > top {
				return verdict{top, "ScaleUpLimit", tooFast}
			}
		} else if want > b.most {
			return verdict{b.most, "TooManyReplicas", tooMany}
		}
	case want < b.current:
		bottom := min(b.current, down.furthest(m, b, -1))
		if b.least < bottom {
			if want < bottom {
				return verdict{bottom, "ScaleDownLimit", tooFastDown}
			}
		} else if want < b.least {
			return verdict{b.least, "TooFewReplicas", tooFew}
		}
	}
	return verdict{want, "DesiredWithinRange", inRange}
}

// furthest is how far the policies of a direction allow to go: 1 is up, -1 is down. A policy counts from what there was when
// its period began.
func (r *rules) furthest(m memory, b *bounds, way int32) int32 {
	if r.choose == autoscalingv2.DisabledPolicySelect {
		return b.current
	}
	var best int32
	for i, p := range r.policies {
		begin := b.current - changed(m.grown, p.PeriodSeconds, b.now) + changed(m.shrunk, p.PeriodSeconds, b.now)
		goal := float64(begin) + float64(way)*float64(p.Value)
		if p.Type == autoscalingv2.PercentScalingPolicy {
			goal = float64(begin) * (1 + float64(way)*float64(p.Value)/100)
		}
		n := whole(goal, way)
		// The least change is the lower goal upwards, and the higher one downwards.
		if least := r.choose == autoscalingv2.MinChangePolicySelect; i == 0 || (way > 0) != least && n > best || (way > 0) == least && n < best {
			best = n
		}
	}
	return best
}

// whole rounds so that there is a change: up when growing, and towards nothing when shrinking.
func whole(f float64, way int32) int32 {
	if way > 0 {
		return ceil(f)
	}
	return int32(max(math.MinInt32, min(math.MaxInt32, math.Trunc(f))))
}
