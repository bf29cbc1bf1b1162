// Package preemption has the plugin DefaultPreemption, which evicts Pods of lower priority for a Pod that fits on no
// node.
package preemption

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// Arguments are the arguments of the plugin DefaultPreemption. Of the nodes on which preemption may help, at least
// Percentage percent and at least Absolute are examined.
type Arguments struct {
	Percentage, Absolute int
}

// Plugin returns the plugin DefaultPreemption.
func (p *Preemptor) Plugin() framework.Plugin {
	return framework.Plugin{
		Name:  "DefaultPreemption",
		Reads: []schema.GroupResource{gr.PodDisruptionBudgets},
		// A Pod is kept out of the queue while its victims are being evicted, so that it does not preempt more Pods.
		PreEnqueue:    p.evictor.preEnqueue,
		QueueingHints: []framework.QueueingHint{{On: framework.AssignedPod, Do: framework.Delete}},
		PostFilter:    p.PostFilter,
	}
}

// NewPreemptor returns a Preemptor that evicts Pods with the client of deps.
func NewPreemptor(args Arguments, deps framework.Deps) *Preemptor {
	return &Preemptor{
		args: args, evictor: newEvictor(deps), attempts: deps.PreemptionAttempts,
		noVictims:  framework.Unresolvable("No preemption victims found for incoming pod"),
		notHelpful: framework.Unresolvable("Preemption is not helpful for scheduling"),
	}
}

// Preemptor finds the Pods to preempt for a Pod that fits on no node, and evicts them.
type Preemptor struct {
	args                  Arguments
	evictor               *evictor
	attempts              prometheus.Counter // may be nil
	noVictims, notHelpful *framework.Rejection
}

// PostFilter chooses the candidate that does the least harm, and starts the eviction of its victims.
func (p *Preemptor) PostFilter(_ context.Context, a framework.PostFilterInput) framework.PostFilterResult {
	if p.attempts != nil {
		p.attempts.Inc()
	}
	if why := IneligibleReason(a); why != "" {
		return framework.PostFilterResult{Message: "preemption: " + why}
	}
	all, tried := p.FindCandidates(a)
	if len(all) == 0 {
		d := framework.Decision{Total: a.Snapshot.Len(), Rejections: tried, RestRejection: p.notHelpful}
		return framework.PostFilterResult{ClearNomination: true, Message: "preemption: " + d.Message()}
	}
	all, err := a.Profile.FilterCandidates(a, all)
	if err != nil {
		return framework.PostFilterResult{Message: "preemption: " + err.Error()}
	}
	if len(all) == 0 {
		return framework.PostFilterResult{Message: "preemption: no candidate node for preemption"}
	}
	best := leastHarmful(all)
	p.evictor.start(a, best)
	return framework.PostFilterResult{Node: best.Node, Final: true, Message: candidateMessage(&best)}
}

// IneligibleReason returns why a Pod may not preempt others now, or "".
func IneligibleReason(a framework.PostFilterInput) string {
	pod := a.Pod.Pod
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return "not eligible due to preemptionPolicy=Never."
	}
	node := nominatedNode(a)
	if node == nil {
		return ""
	}
	// If preemption on the nominated node cannot help any more, the Pod may preempt on another node.
	if r := a.Decision.RejectionOf(node.Name()); r != nil && r.Unresolvable {
		return ""
	}
	for _, p := range node.Pods {
		if p.Priority() < a.Pod.Priority() && isBeingPreempted(p.Pod) {
			return "not eligible due to a terminating pod on the nominated node."
		}
	}
	return ""
}

// nominatedNode returns the node that the Pod is nominated for, or nil. The snapshot has the nomination before the
// status of the Pod does.
func nominatedNode(a framework.PostFilterInput) *framework.NodeInfo {
	if n := a.Snapshot.NominatedNode(a.Pod.Pod.UID); n != nil {
		return n
	}
	return a.Snapshot.Node(a.Pod.Pod.Status.NominatedNodeName)
}

// isBeingPreempted reports whether a Pod is terminating because of a preemption.
func isBeingPreempted(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	return i >= 0 && pod.Status.Conditions[i].Status == corev1.ConditionTrue &&
		pod.Status.Conditions[i].Reason == corev1.PodReasonPreemptionByScheduler
}

// FindCandidates examines the nodes whose rejection preemption may resolve. It returns the candidates, and the
// rejections of the nodes where preemption does not help.
func (p *Preemptor) FindCandidates(a framework.PostFilterInput) (out []framework.PreemptionCandidate, tried []framework.NodeRejection) {
	nodes := resolvableNodes(a)
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
		c, r := p.FindVictims(a, n, budgets)
		if r != nil {
			tried = append(tried, framework.NodeRejection{Node: n.Name(), Plugin: "DefaultPreemption", Rejection: r})
			continue
		}
		out = append(out, c)
		if c.BudgetViolations == 0 {
			clean++
		}
		if clean > 0 && len(out) >= enough || !a.Deadline.IsZero() && time.Now().After(a.Deadline) {
			break
		}
	}
	// Candidates without violation of disruption budgets come first.
	slices.SortStableFunc(out, func(a, b framework.PreemptionCandidate) int {
		return min(a.BudgetViolations, 1) - min(b.BudgetViolations, 1)
	})
	return out, tried
}

// resolvableNodes returns the nodes whose rejection may be resolved by evicting Pods.
func resolvableNodes(a framework.PostFilterInput) (out []*framework.NodeInfo) {
	can := func(r *framework.Rejection) bool { return !r.Unresolvable && r.Err == nil }
	if r := a.Decision.PodRejection; r != nil {
		if can(r) {
			out = slices.Collect(a.Snapshot.All())
		}
		return out
	}
	for _, v := range a.Decision.Rejections {
		if n := a.Snapshot.Node(v.Node); n != nil && can(v.Rejection) {
			out = append(out, n)
		}
	}
	return out
}

// FindVictims returns the Pods that have to be evicted from a node. In a dry run, first all Pods of lower priority are
// removed; then each is added again if the Pod still fits, first those whose eviction violates a disruption budget, and
// the most important ones first.
func (p *Preemptor) FindVictims(a framework.PostFilterInput, n *framework.NodeInfo,
	budgets []*policyv1.PodDisruptionBudget) (framework.PreemptionCandidate, *framework.Rejection) {
	var lesser []*framework.PodInfo
	for _, q := range n.Pods {
		if q.Priority() < a.Pod.Priority() {
			lesser = append(lesser, q)
		}
	}
	if len(lesser) == 0 {
		return framework.PreemptionCandidate{}, p.noVictims
	}
	t := framework.NewDryRun(a.Snapshot, a.Pod, a.Decision.Prepared, n)
	defer t.End()
	for _, q := range lesser {
		t.RemovePod(q)
	}
	if r, _ := t.FilterWithNominees(); r != nil {
		return framework.PreemptionCandidate{}, r
	}
	slices.SortStableFunc(lesser, framework.CompareImportance)
	c := framework.PreemptionCandidate{Node: n.Name()}
	violating, others := splitByBudget(lesser, budgets)
	for i, q := range append(violating, others...) {
		t.AddPod(q)
		if r, _ := t.FilterWithNominees(); r == nil {
			continue
		}
		t.RemovePod(q)
		c.Victims = append(c.Victims, q)
		if i < len(violating) {
			c.BudgetViolations++
		}
	}
	if len(c.Victims) == 0 {
		return c, framework.Failed(fmt.Errorf("expected at least one victim pod on node %q", n.Name()))
	}
	slices.SortStableFunc(c.Victims, framework.CompareImportance)
	return c, nil
}

// leastHarmful returns the candidate whose preemption does the least harm, by upstream's criteria.
func leastHarmful(all []framework.PreemptionCandidate) framework.PreemptionCandidate {
	harm := []func(c *framework.PreemptionCandidate) int64{
		func(c *framework.PreemptionCandidate) int64 { return int64(c.BudgetViolations) },
		func(c *framework.PreemptionCandidate) int64 { return int64(c.Victims[0].Priority()) },
		func(c *framework.PreemptionCandidate) (sum int64) {
			for _, v := range c.Victims {
				sum += int64(v.Priority()) + math.MaxInt32 + 1 // positive, so that fewer victims always have a smaller sum
			}
			return sum
		},
		func(c *framework.PreemptionCandidate) int64 { return int64(len(c.Victims)) },
		func(c *framework.PreemptionCandidate) int64 { return -earliestStart(c) },
	}
	for _, f := range harm {
		least := slices.MinFunc(all, func(a, b framework.PreemptionCandidate) int { return cmp.Compare(f(&a), f(&b)) })
		bound := f(&least)
		all = slices.DeleteFunc(slices.Clone(all), func(c framework.PreemptionCandidate) bool { return f(&c) != bound })
		if len(all) == 1 {
			break
		}
	}
	return all[0]
}

// earliestStart returns the earliest start time of the victims with the highest priority.
func earliestStart(c *framework.PreemptionCandidate) int64 {
	first := framework.StartTime(c.Victims[0].Pod)
	for _, v := range c.Victims {
		if v.Priority() == c.Victims[0].Priority() && framework.StartTime(v.Pod).Before(first) {
			first = framework.StartTime(v.Pod)
		}
	}
	return first.UnixNano()
}

// New returns the plugin DefaultPreemption.
func New(deps framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.DefaultPreemptionArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	percentage, absolute := int32(10), int32(100)
	if args.MinCandidateNodesPercentage != nil {
		percentage = *args.MinCandidateNodesPercentage
	}
	if args.MinCandidateNodesAbsolute != nil {
		absolute = *args.MinCandidateNodesAbsolute
	}
	var errs field.ErrorList
	first, second := field.NewPath("minCandidateNodesPercentage"), field.NewPath("minCandidateNodesAbsolute")
	if percentage < 0 || percentage > 100 {
		errs = append(errs, field.Invalid(first, percentage, "not in valid range [0, 100]"))
	}
	if absolute < 0 {
		errs = append(errs, field.Invalid(second, absolute, "not in valid range [0, inf)"))
	}
	if percentage == 0 && absolute == 0 {
		errs = append(errs, field.Invalid(first, percentage, "cannot be zero at the same time as minCandidateNodesAbsolute"),
			field.Invalid(second, absolute, "cannot be zero at the same time as minCandidateNodesPercentage"))
	}
	if err := errs.ToAggregate(); err != nil {
		return framework.Plugin{}, err
	}
	return NewPreemptor(Arguments{Percentage: int(percentage), Absolute: int(absolute)}, deps).Plugin(), nil
}
