// Package spread has the plugin PodTopologySpread, which spreads Pods over the domains of a topology, such as zones.
package spread

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// arguments are the arguments of PodTopologySpread.
type arguments struct {
	// Defaults are the constraints of Pods without constraints of their own. Their selector is derived from the
	// Services and the owner of a Pod.
	Defaults []corev1.TopologySpreadConstraint
	// System says that Defaults are the built-in ones. Then nodes without some of their topology keys are scored by the
	// others.
	System bool
}

// systemDefaults returns the built-in default constraints, which spread Pods softly over nodes and zones.
func systemDefaults() arguments {
	return arguments{System: true, Defaults: []corev1.TopologySpreadConstraint{
		{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
		{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5},
	}}
}

// newPlugin returns the plugin PodTopologySpread. current has the objects for queueing hints; it may be nil if there
// are no defaults.
func newPlugin(args arguments, current framework.Cluster) framework.Plugin {
	t := &topologySpread{
		args: args, current: current,
		skewed:       framework.Unschedulable("node(s) didn't match pod topology spread constraints"),
		missingLabel: framework.Unresolvable("node(s) didn't match pod topology spread constraints (missing required label)"),
	}
	p := framework.Plugin{
		Name: "PodTopologySpread",
		QueueingHints: []framework.QueueingHint{
			{On: framework.AssignedPod, Do: framework.Add | framework.PodLabel | framework.Delete, If: t.podChangeHelps},
			{On: framework.TargetPod, Do: framework.PodToleration | framework.PodLabel, If: t.ownChangeHelps},
			{On: framework.NodeResource, Do: framework.Add | framework.Delete | framework.NodeLabel | framework.NodeTaint,
				If: t.nodeChangeHelps},
		},
		Prepare: t.prepare,
	}
	if len(args.Defaults) > 0 {
		p.Reads = []schema.GroupResource{gr.Services, gr.ReplicationControllers, gr.ReplicaSets, gr.StatefulSets}
	}
	return p
}

type topologySpread struct {
	args                 arguments
	current              framework.Cluster
	skewed, missingLabel *framework.Rejection
}

// constraint is a parsed topology spread constraint.
type constraint struct {
	key        string
	maxSkew    int
	minDomains int
	selector   labels.Selector
	// honorAffinity and honorTaints say that nodes which the Pod's node affinity or tolerations exclude are not
	// counted.
	honorAffinity, honorTaints bool
}

// constraintsOf returns the constraints of a Pod, the required and the preferred ones. sure reports that they are the
// same for all Pods with the same owner, also later.
func (t *topologySpread) constraintsOf(c framework.Cluster, pod *corev1.Pod) (hard, soft []constraint, sure bool, err error) {
	list, sure := pod.Spec.TopologySpreadConstraints, true
	var all labels.Selector
	if len(list) == 0 {
		list = t.args.Defaults
		if len(list) == 0 {
			return nil, nil, true, nil
		}
		if all, sure = similarPods(c, pod); all.Empty() {
			return nil, nil, sure, nil
		}
	}
	for i := range list {
		r, err := parseConstraint(&list[i], pod)
		if err != nil {
			return nil, nil, false, err
		}
		if all != nil {
			r.selector = all
		}
		if list[i].WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, r)
		} else {
			soft = append(soft, r)
		}
	}
	return hard, soft, sure, nil
}

func parseConstraint(c *corev1.TopologySpreadConstraint, pod *corev1.Pod) (r constraint, err error) {
	r = constraint{key: c.TopologyKey, maxSkew: int(c.MaxSkew), minDomains: 1, honorAffinity: true}
	if r.selector, err = metav1.LabelSelectorAsSelector(c.LabelSelector); err != nil {
		return r, err
	}
	matching := labels.Set{}
	for _, key := range c.MatchLabelKeys {
		if v, has := pod.Labels[key]; has {
			matching[key] = v
		}
	}
	if len(matching) > 0 {
		if more, selectable := r.selector.Requirements(); selectable {
			r.selector = labels.SelectorFromSet(matching).Add(more...)
		}
	}
	if c.MinDomains != nil {
		r.minDomains = int(*c.MinDomains)
	}
	if c.NodeAffinityPolicy != nil {
		r.honorAffinity = *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	}
	if c.NodeTaintsPolicy != nil {
		r.honorTaints = *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	}
	return r, nil
}

func (t *topologySpread) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	if r := framework.TooManyTerms("topology spread constraints", len(p.Pod.Spec.TopologySpreadConstraints)); r != nil {
		return framework.Prepared{Reject: r}
	}
	hard, soft, sure, err := t.constraintsOf(s.Cluster, p.Pod)
	if err != nil {
		return framework.Prepared{Reject: framework.Failed(err)}
	}
	reuse := framework.ReuseWhileUpdated
	if !sure {
		reuse = framework.ReuseNever
	}
	if len(hard)+len(soft) == 0 {
		if sure {
			return framework.Skip()
		}
		return framework.Prepared{}
	}
	strict := len(p.Pod.Spec.TopologySpreadConstraints) > 0 || !t.args.System
	c := newPodCounts(p.Pod, hard, soft, strict)
	c.fill(s)
	out := framework.Prepared{Reuse: reuse, Update: c.update}
	if len(hard) > 0 {
		out.Filter = func(n *framework.NodeInfo) *framework.Rejection { return t.filter(c, n) }
	}
	if len(soft) > 0 {
		// The score depends on which other nodes are feasible, so it is computed in Normalize.
		out.Score = func(*framework.NodeInfo) int64 { return 0 }
		out.Normalize = c.score
	}
	return out
}

func (t *topologySpread) filter(c *podCounts, n *framework.NodeInfo) *framework.Rejection {
	for i := range c.hard {
		d := &c.hard[i]
		at := d.nodes[n.Slot].domain
		if at < 0 {
			return t.missingLabel
		}
		least := 0
		if d.size >= d.minDomains {
			least = d.minimum
		}
		if d.counts[at]+d.self-least > d.maxSkew {
			return t.skewed
		}
	}
	return nil
}

// isEligible reports whether the Pods of a node are counted for a constraint.
func (r *constraint) isEligible(pod *corev1.Pod, wants nodeaffinity.RequiredNodeAffinity, n *framework.NodeInfo) bool {
	if r.honorAffinity {
		// A selector that cannot be parsed matches nothing, as upstream.
		if ok, _ := wants.Match(n.Node); !ok {
			return false
		}
	}
	if r.honorTaints {
		for i := range n.HardTaints {
			if !framework.Tolerates(pod.Spec.Tolerations, &n.HardTaints[i]) {
				return false
			}
		}
	}
	return true
}

// similarPods returns the selector of the default constraints of a Pod: it selects the Pods of the same Services and
// the same owner. It returns false if the owner was not found, so that the result may change.
func similarPods(c framework.Cluster, pod *corev1.Pod) (labels.Selector, bool) {
	set := labels.Set{}
	if c == nil {
		return set.AsSelector(), true
	}
	for o := range c.List(gr.Services, pod.Namespace) {
		s := o.(*corev1.Service)
		if s.Spec.Selector != nil && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			set = labels.Merge(set, s.Spec.Selector)
		}
	}
	all := set.AsSelector()
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return all, true
	}
	own, supported, found := ownerSelector(c, pod.Namespace, owner)
	if own != nil {
		if more, selectable := own.Requirements(); selectable {
			all = all.Add(more...)
		}
	}
	return all, found || !supported
}
