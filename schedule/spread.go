package schedule

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/kinds/gr"
)

// SpreadArgs are the arguments of TopologySpread.
type SpreadArgs struct {
	// Defaults are for pods without constraints of their own. Whom they are about follows from the Services and the owner
	// of a pod.
	Defaults []corev1.TopologySpreadConstraint
	// System says that Defaults are built in. Then a node may lack some of their keys and still be scored by the others.
	System bool
}

// SystemSpread are the defaults when nothing is configured: a weak wish to be on several nodes and in several zones.
func SystemSpread() SpreadArgs {
	return SpreadArgs{System: true, Defaults: []corev1.TopologySpreadConstraint{
		{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
		{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5},
	}}
}

// TopologySpread keeps the number of like pods in the domains of a topology close to each other. now gives the objects for
// hints about pods that wait; it may be nil if there are no defaults.
func TopologySpread(args SpreadArgs, now Cluster) Plugin {
	t := &topology{
		args: args, now: now,
		skewed:  No("node(s) didn't match pod topology spread constraints"),
		keyless: NotEver("node(s) didn't match pod topology spread constraints (missing required label)"),
	}
	p := Plugin{
		Name: "PodTopologySpread",
		Wakes: []Wake{
			{On: AssignedPod, Do: Add | PodLabel | Delete, If: t.podMatters},
			{On: TargetPod, Do: PodToleration | PodLabel, If: t.selfMatters},
			{On: NodeResource, Do: Add | Delete | NodeLabel | NodeTaint, If: t.nodeMatters},
		},
		Prepare: t.prepare,
	}
	if len(args.Defaults) > 0 {
		p.Reads = []schema.GroupResource{gr.Services, gr.ReplicationControllers, gr.ReplicaSets, gr.StatefulSets}
	}
	return p
}

type topology struct {
	args            SpreadArgs
	now             Cluster
	skewed, keyless *Verdict
}

// spreadRule is a constraint, parsed.
type spreadRule struct {
	key        string
	skew       int
	minDomains int
	selector   labels.Selector
	// affinity and taints say that nodes do not count which the pod may not go to because of them.
	affinity, taints bool
}

// rules are the constraints of a pod. sure says that they are the same for pods with the same owner, now and later.
func (t *topology) rules(c Cluster, pod *corev1.Pod) (hard, soft []spreadRule, sure bool, err error) {
	list, sure := pod.Spec.TopologySpreadConstraints, true
	var all labels.Selector
	if len(list) == 0 {
		list = t.args.Defaults
		if len(list) == 0 {
			return nil, nil, true, nil
		}
		if all, sure = likePods(c, pod); all.Empty() {
			return nil, nil, sure, nil
		}
	}
	for i := range list {
		r, err := newSpreadRule(&list[i], pod)
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

func newSpreadRule(c *corev1.TopologySpreadConstraint, pod *corev1.Pod) (r spreadRule, err error) {
	r = spreadRule{key: c.TopologyKey, skew: int(c.MaxSkew), minDomains: 1, affinity: true}
	if r.selector, err = metav1.LabelSelectorAsSelector(c.LabelSelector); err != nil {
		return r, err
	}
	same := labels.Set{}
	for _, key := range c.MatchLabelKeys {
		if v, has := pod.Labels[key]; has {
			same[key] = v
		}
	}
	if len(same) > 0 {
		if more, selectable := r.selector.Requirements(); selectable {
			r.selector = labels.SelectorFromSet(same).Add(more...)
		}
	}
	if c.MinDomains != nil {
		r.minDomains = int(*c.MinDomains)
	}
	if c.NodeAffinityPolicy != nil {
		r.affinity = *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	}
	if c.NodeTaintsPolicy != nil {
		r.taints = *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	}
	return r, nil
}

func (t *topology) prepare(s *Snapshot, p *PodInfo) Prepared {
	hard, soft, sure, err := t.rules(s.Cluster, p.Pod)
	if err != nil {
		return Prepared{Reject: Failed(err)}
	}
	reuse := WhileTold
	if !sure {
		reuse = Never
	}
	if len(hard)+len(soft) == 0 {
		if sure {
			return Silent()
		}
		return Prepared{}
	}
	strict := len(p.Pod.Spec.TopologySpreadConstraints) > 0 || !t.args.System
	c := newSpreadCount(p.Pod, hard, soft, strict)
	c.fill(s)
	out := Prepared{Reuse: reuse, Update: c.update}
	if len(hard) > 0 {
		out.Filter = func(n *NodeInfo) *Verdict { return t.filter(c, n) }
	}
	if len(soft) > 0 {
		// What a count is worth depends on which other nodes fit, so all the work is in Normalize.
		out.Score = func(*NodeInfo) int64 { return 0 }
		out.Normalize = c.score
	}
	return out
}

func (t *topology) filter(c *spreadCount, n *NodeInfo) *Verdict {
	for i := range c.hard {
		d := &c.hard[i]
		at := d.seats[n.Slot].domain
		if at < 0 {
			return t.keyless
		}
		least := 0
		if d.size >= d.minDomains {
			least = d.least
		}
		if d.count[at]+d.self-least > d.skew {
			return t.skewed
		}
	}
	return nil
}

// eligible says whether a node counts for a rule of the pod.
func (r *spreadRule) eligible(pod *corev1.Pod, wants nodeaffinity.RequiredNodeAffinity, n *NodeInfo) bool {
	if r.affinity {
		// What cannot be parsed matches nothing, as it always has.
		if ok, _ := wants.Match(n.Node); !ok {
			return false
		}
	}
	if r.taints {
		for i := range n.Hard {
			if !tolerated(pod.Spec.Tolerations, &n.Hard[i]) {
				return false
			}
		}
	}
	return true
}

// likePods selects the pods that a pod shall be spread with: those of the same Services and the same owner. It returns false
// if the owner is not known, so that the answer may change.
func likePods(c Cluster, pod *corev1.Pod) (labels.Selector, bool) {
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
