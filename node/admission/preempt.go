package admission

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cgroup"
	"proa.dev/node/fact"
)

// need is how much of a resource must be freed.
type need struct {
	resource corev1.ResourceName
	amount   int64
}

type needs []need

// without returns the needs that are left if some Pods are removed.
func (ns needs) without(pods ...*corev1.Pod) (out needs) {
	for _, n := range ns {
		for _, p := range pods {
			n.amount -= request(p, n.resource, false)
		}
		if n.amount > 0 {
			out = append(out, n)
		}
	}
	return out
}

// distance returns how far a single Pod is from meeting the needs; each resource has the same weight.
func (ns needs) distance(p *corev1.Pod) (sum float64) {
	for _, n := range ns {
		if rest := float64(n.amount - request(p, n.resource, false)); rest > 0 {
			sum += (rest / float64(n.amount)) * (rest / float64(n.amount))
		}
	}
	return sum
}

func (ns needs) err() error {
	var b strings.Builder
	for _, n := range ns {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", n.resource, n.amount)
	}
	return errors.New("no set of running pods found to reclaim resources: [" + b.String() + "]")
}

// preempt chooses the Pods to preempt for a critical Pod: as few Guaranteed ones as possible, then as few Burstable
// ones, then as few BestEffort ones.
func preempt(p *corev1.Pod, others []*corev1.Pod, lacks []MissingResource) ([]*corev1.Pod, error) {
	var want needs
	for _, l := range lacks {
		want = append(want, need{l.Resource, l.Requested - (l.Capacity - l.Used)})
	}
	by := map[corev1.PodQOSClass][]*corev1.Pod{}
	for _, o := range others {
		if mayPreempt(o, p) {
			by[cgroup.QOSClass(o)] = append(by[cgroup.QOSClass(o)], o)
		}
	}
	best, burst, sure := by[corev1.PodQOSBestEffort], by[corev1.PodQOSBurstable], by[corev1.PodQOSGuaranteed]
	if left := want.without(slices.Concat(best, burst, sure)...); len(left) > 0 {
		return nil, left.err()
	}
	fromSure, err := closestPods(sure, want.without(slices.Concat(best, burst)...))
	if err != nil {
		return nil, err
	}
	fromBurst, err := closestPods(burst, want.without(slices.Concat(best, fromSure)...))
	if err != nil {
		return nil, err
	}
	fromBest, err := closestPods(best, want.without(slices.Concat(fromBurst, fromSure)...))
	if err != nil {
		return nil, err
	}
	return slices.Concat(fromBest, fromBurst, fromSure), nil
}

// mayPreempt reports whether a Pod may be preempted for another: a Pod that is not critical for one that is, or one of
// lower priority.
func mayPreempt(p, to *corev1.Pod) bool {
	if fact.Critical(to) && !fact.Critical(p) {
		return true
	}
	return to.Spec.Priority != nil && p.Spec.Priority != nil && *to.Spec.Priority > *p.Spec.Priority
}

// closestPods repeatedly takes the Pod that comes nearest to the needs until they are met; of two equal ones the smaller.
func closestPods(pods []*corev1.Pod, want needs) (out []*corev1.Pod, err error) {
	pods = slices.Clone(pods)
	for len(want) > 0 {
		if len(pods) == 0 {
			return nil, want.err()
		}
		best := 0
		for i := range pods {
			near, now := want.distance(pods[i]), want.distance(pods[best])
			if near < now || near == now && requestsLess(pods[i], pods[best]) {
				best = i
			}
		}
		want = want.without(pods[best])
		out = append(out, pods[best])
		pods = slices.Delete(pods, best, best+1)
	}
	return out, nil
}

func requestsLess(a, b *corev1.Pod) bool {
	for _, r := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		if x, y := request(a, r, false), request(b, r, false); x != y {
			return x < y
		}
	}
	return false
}
