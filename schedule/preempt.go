package schedule

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
)

// PreemptionArgs are the arguments of Preemption. Of the nodes that could do, at least Percentage and at least Absolute are
// tried before the search ends.
type PreemptionArgs struct {
	Percentage, Absolute int
}

// Preemption makes room for a pod that fits nowhere by ending pods that are less important.
func Preemption(args PreemptionArgs, deps Deps) Plugin {
	p := &preemption{
		args: args, evictor: newEvictor(deps),
		nobody:  NotEver("No preemption victims found for incoming pod"),
		useless: NotEver("Preemption is not helpful for scheduling"),
	}
	return Plugin{
		Name:  "DefaultPreemption",
		Reads: []schema.GroupResource{gr.PodDisruptionBudgets},
		// A pod is kept out of the queue while its victims are being ended, so that it does not look for more.
		Gate:   p.evictor.gate,
		Wakes:  []Wake{{On: AssignedPod, Do: Delete}},
		Rescue: p.rescue,
	}
}

type preemption struct {
	args            PreemptionArgs
	evictor         *evictor
	nobody, useless *Verdict
}

// candidate is a node with the pods that have to go, the most important first.
type candidate struct {
	node       string
	victims    []*PodInfo
	violations int // of disruption budgets
}

func (p *preemption) rescue(_ context.Context, a Attempt) Rescue {
	if p.evictor.metrics != nil {
		p.evictor.metrics.Preemption.Inc()
	}
	if why := ineligible(a); why != "" {
		return Rescue{Message: "preemption: " + why}
	}
	all, tried := p.candidates(a)
	if len(all) == 0 {
		d := Decision{Total: a.Snapshot.Len(), Verdicts: tried, Rest: p.useless}
		return Rescue{Clear: true, Message: "preemption: " + d.Message()}
	}
	all, err := a.Profile.askExtenders(a, all)
	if err != nil {
		return Rescue{Message: "preemption: " + err.Error()}
	}
	if len(all) == 0 {
		return Rescue{Message: "preemption: no candidate node for preemption"}
	}
	best := pick(all)
	p.evictor.start(a, best)
	return Rescue{Node: best.node, Done: true, Message: best.message()}
}

// ineligible says why a pod may not preempt others now, or "".
func ineligible(a Attempt) string {
	pod := a.Pod.Pod
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	node := nominee(a)
	if node == nil {
		return ""
	}
	// If the node will not do any more, whoever leaves, the pod has to look elsewhere.
	if v := a.Decision.VerdictOf(node.Name()); v != nil && v.Unresolvable {
		return ""
	}
	for _, p := range node.Pods {
		if p.Priority() < a.Pod.Priority() && endedByScheduler(p.Pod) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

// nominee is the node the pod waits for, or nil. That the pod knows of it itself may take a moment.
func nominee(a Attempt) *NodeInfo {
	for slot, pods := range a.Snapshot.nominated {
		if slices.ContainsFunc(pods, func(p *PodInfo) bool { return p.Pod.UID == a.Pod.Pod.UID }) {
			if n := a.Snapshot.at(slot); n.Node != nil {
				return n
			}
		}
	}
	return a.Snapshot.Node(a.Pod.Pod.Status.NominatedNodeName)
}

// endedByScheduler says that a pod is on its way out because of a preemption.
func endedByScheduler(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	return i >= 0 && pod.Status.Conditions[i].Status == corev1.ConditionTrue && pod.Status.Conditions[i].Reason == corev1.PodReasonPreemptionByScheduler
}

// candidates tries the nodes that rejected the pod for something that can change. It returns the verdicts of those that will
// not do either way.
func (p *preemption) candidates(a Attempt) (out []candidate, tried []NodeVerdict) {
	nodes := changeable(a)
	if len(nodes) == 0 {
		return nil, nil
	}
	var budgets []*policyv1.PodDisruptionBudget
	if a.Snapshot.Cluster != nil {
		for o := range a.Snapshot.Cluster.List(gr.PodDisruptionBudgets, "") {
			budgets = append(budgets, o.(*policyv1.PodDisruptionBudget))
		}
	}
	enough := min(max(len(nodes)*p.args.Percentage/100, p.args.Absolute), len(nodes))
	start, clean := int(a.Decision.Seed.Tie%uint64(len(nodes))), 0
	for i := range nodes {
		n := nodes[(start+i)%len(nodes)]
		c, v := p.try(a, n, budgets)
		if v != nil {
			tried = append(tried, NodeVerdict{n.Name(), "DefaultPreemption", v})
			continue
		}
		out = append(out, c)
		if c.violations == 0 {
			clean++
		}
		if clean > 0 && len(out) >= enough {
			break
		}
	}
	// Those that break no budget are preferred, as far as there is room for them.
	slices.SortStableFunc(out, func(a, b candidate) int { return min(a.violations, 1) - min(b.violations, 1) })
	return out, tried
}

// changeable are the nodes whose verdict can be changed by pods that leave.
func changeable(a Attempt) (out []*NodeInfo) {
	can := func(v *Verdict) bool { return !v.Unresolvable && v.Err == nil }
	if v := a.Decision.Rejected; v != nil {
		if can(v) {
			out = slices.Collect(a.Snapshot.All())
		}
		return out
	}
	for _, v := range a.Decision.Verdicts {
		if n := a.Snapshot.Node(v.Node); n != nil && can(v.Verdict) {
			out = append(out, n)
		}
	}
	return out
}

// try finds who has to leave a node. First all less important pods leave, then each comes back, the most important first,
// if the pod still fits; those whose budget does not allow their leaving come before all others.
func (p *preemption) try(a Attempt, n *NodeInfo, budgets []*policyv1.PodDisruptionBudget) (candidate, *Verdict) {
	var lesser []*PodInfo
	for _, q := range n.Pods {
		if q.Priority() < a.Pod.Priority() {
			lesser = append(lesser, q)
		}
	}
	if len(lesser) == 0 {
		return candidate{}, p.nobody
	}
	t := newTrial(a.Snapshot, a.Pod, a.Decision.parts, n)
	defer t.end()
	for _, q := range lesser {
		t.remove(q)
	}
	if v, _ := t.fits(); v != nil {
		return candidate{}, v
	}
	slices.SortStableFunc(lesser, byImportance)
	c := candidate{node: n.Name()}
	violating, others := overBudget(lesser, budgets)
	for i, q := range append(violating, others...) {
		t.add(q)
		if v, _ := t.fits(); v == nil {
			continue
		}
		t.remove(q)
		c.victims = append(c.victims, q)
		if i < len(violating) {
			c.violations++
		}
	}
	if len(c.victims) == 0 {
		return c, Failed(fmt.Errorf("expected at least one victim pod on node %q", n.Name()))
	}
	slices.SortStableFunc(c.victims, byImportance)
	return c, nil
}

// byImportance is the order of victims: priority, then who has been there for longer.
func byImportance(a, b *PodInfo) int {
	return cmp.Or(cmp.Compare(b.Priority(), a.Priority()), started(a.Pod).Compare(started(b.Pod)))
}

// started is when a pod began to run. One that has not yet is the youngest.
func started(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime == nil {
		return time.Unix(math.MaxInt32, 0)
	}
	return pod.Status.StartTime.Time
}

// pick is the candidate that does the least harm.
func pick(all []candidate) candidate {
	harm := []func(c *candidate) int64{
		func(c *candidate) int64 { return int64(c.violations) },
		func(c *candidate) int64 { return int64(c.victims[0].Priority()) },
		func(c *candidate) (sum int64) {
			for _, v := range c.victims {
				sum += int64(v.Priority()) + math.MaxInt32 + 1 // never negative, so that fewer are always less
			}
			return sum
		},
		func(c *candidate) int64 { return int64(len(c.victims)) },
		func(c *candidate) int64 { return -c.youth() },
	}
	for _, f := range harm {
		least := slices.MinFunc(all, func(a, b candidate) int { return cmp.Compare(f(&a), f(&b)) })
		bound := f(&least)
		all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return f(&c) != bound })
		if len(all) == 1 {
			break
		}
	}
	return all[0]
}

// youth is when the first of the most important victims began.
func (c *candidate) youth() int64 {
	first := started(c.victims[0].Pod)
	for _, v := range c.victims {
		if v.Priority() == c.victims[0].Priority() && started(v.Pod).Before(first) {
			first = started(v.Pod)
		}
	}
	return first.UnixNano()
}
