package affinity

import (
	"encoding/json"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// podAffinityArgs are the arguments of PodAffinity.
type podAffinityArgs struct {
	// HardWeight is the score for each Pod in a domain whose required affinity selects the Pod.
	HardWeight int64
	// IgnoreOthers says that the preferred terms of existing Pods are ignored for Pods without preferred terms.
	IgnoreOthers bool
}

// newPodAffinity returns the plugin InterPodAffinity, which evaluates the affinity and anti-affinity of the Pod to
// existing Pods, and the anti-affinity of existing Pods to it. current has the namespaces for queueing hints.
func newPodAffinity(args podAffinityArgs, current framework.Cluster) framework.Plugin {
	a := &podAffinity{
		args: args, current: current,
		affinityUnmet:             framework.Unresolvable("node(s) didn't match pod affinity rules"),
		antiAffinityUnmet:         framework.Unschedulable("node(s) didn't match pod anti-affinity rules"),
		existingAntiAffinityUnmet: framework.Unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
	}
	return framework.Plugin{
		Name:  "InterPodAffinity",
		Reads: []schema.GroupResource{gr.Namespaces},
		QueueingHints: []framework.QueueingHint{
			{On: framework.AssignedPod, Do: framework.Add | framework.PodLabel | framework.Delete, If: a.podChangeHelps},
			{On: framework.TargetPod, Do: framework.PodLabel},
			{On: framework.NodeResource, Do: framework.Add | framework.NodeLabel, If: a.nodeChangeHelps},
		},
		Prepare: a.prepare,
	}
}

type podAffinity struct {
	args                                                        podAffinityArgs
	current                                                     framework.Cluster
	affinityUnmet, antiAffinityUnmet, existingAntiAffinityUnmet *framework.Rejection
}

// podRelations counts the Pods that the affinity terms of a Pod select, and those whose terms select the Pod, by
// topology domain.
type podRelations struct {
	pod             *framework.PodInfo
	namespaceLabels labels.Set // of the Pod's namespace
	terms           podTerms
	// affinityMatches counts the Pods that all required affinity terms select, antiAffinityMatches those that a
	// required anti-affinity term selects, and existingAntiAffinity the Pods whose required anti-affinity selects the
	// Pod. preference is the sum of the weights of preferred terms.
	affinityMatches, antiAffinityMatches, existingAntiAffinity, preference domainCounts
	// requiredWeight is the weight of a required affinity term of another Pod.
	requiredWeight int64
	hasScores      bool // preference is used
	countOthers    bool // the preferred terms of other Pods count
	matchesItself  bool // the Pod is selected by its own required affinity
}

// podTerms are the affinity terms of a Pod, with namespace selectors resolved.
type podTerms struct {
	affinity, antiAffinity                   []framework.AffinityTerm
	preferredAffinity, preferredAntiAffinity []framework.WeightedAffinityTerm
}

// domainCounts has numbers by the key and the value of a node label. Numbers that are 0 are removed.
type domainCounts map[string]map[string]int64

func (d domainCounts) add(node *corev1.Node, key string, by int64) {
	value, has := node.Labels[key]
	if !has {
		return
	}
	of := d[key]
	if of == nil {
		of = map[string]int64{}
		d[key] = of
	}
	if of[value] += by; of[value] == 0 {
		if delete(of, value); len(of) == 0 {
			delete(d, key)
		}
	}
}

func (a *podAffinity) prepare(s *framework.Snapshot, p *framework.PodInfo) framework.Prepared {
	terms := len(p.Affinity) + len(p.AntiAffinity) + len(p.PreferAffinity) + len(p.PreferAntiAffinity)
	if r := framework.TooManyTerms("pod affinity terms", terms); r != nil {
		return framework.Prepared{Reject: r}
	}
	c := &podRelations{
		pod: p, namespaceLabels: labelsOfNamespace(s.Cluster, p.Pod.Namespace), terms: termsOf(s.Cluster, p),
		requiredWeight:  a.args.HardWeight,
		affinityMatches: domainCounts{}, antiAffinityMatches: domainCounts{}, existingAntiAffinity: domainCounts{},
		preference: domainCounts{},
	}
	prefers := len(c.terms.preferredAffinity)+len(c.terms.preferredAntiAffinity) > 0
	c.countOthers = prefers || !a.args.IgnoreOthers
	c.hasScores = true // until the Pods are counted
	c.matchesItself = len(c.terms.affinity) > 0 && matchAll(c.terms.affinity, p.Pod)
	c.fill(s, prefers)
	c.hasScores = prefers || len(c.preference) > 0
	out := framework.Prepared{Reuse: framework.ReuseWhileUpdated, Update: c.update,
		Filter: func(n *framework.NodeInfo) *framework.Rejection { return a.filter(c, n.Node) }}
	if c.hasScores {
		out.Score = c.score
		out.Normalize = func(_ []*framework.NodeInfo, scores []int64) { normalizeRange(scores) }
	}
	return out
}

// fill counts the Pods of a snapshot. For a Pod without terms, only existing Pods with terms are counted.
func (c *podRelations) fill(s *framework.Snapshot, prefers bool) {
	if prefers || len(c.terms.affinity)+len(c.terms.antiAffinity) > 0 {
		for n := range s.All() {
			for _, p := range n.Pods {
				c.update(n, p, 1)
			}
		}
		return
	}
	for n := range s.WithAffinity() {
		for _, p := range n.WithAffinity {
			c.update(n, p, 1)
		}
	}
}

// update counts a Pod that was added or removed. It returns false if scoring has become necessary, which requires to
// prepare the Pod again.
func (c *podRelations) update(n *framework.NodeInfo, p *framework.PodInfo, by int) bool {
	node, count := n.Node, int64(by)
	if len(c.terms.affinity) > 0 && matchAll(c.terms.affinity, p.Pod) {
		for i := range c.terms.affinity {
			c.affinityMatches.add(node, c.terms.affinity[i].TopologyKey, count)
		}
	}
	for i := range c.terms.antiAffinity {
		if t := &c.terms.antiAffinity[i]; t.Matches(p.Pod, nil) {
			c.antiAffinityMatches.add(node, t.TopologyKey, count)
		}
	}
	for i := range p.AntiAffinity {
		if t := &p.AntiAffinity[i]; t.Matches(c.pod.Pod, c.namespaceLabels) {
			c.existingAntiAffinity.add(node, t.TopologyKey, count)
		}
	}
	for i := range c.terms.preferredAffinity {
		if t := &c.terms.preferredAffinity[i]; t.Matches(p.Pod, nil) {
			c.preference.add(node, t.TopologyKey, count*int64(t.Weight))
		}
	}
	for i := range c.terms.preferredAntiAffinity {
		if t := &c.terms.preferredAntiAffinity[i]; t.Matches(p.Pod, nil) {
			c.preference.add(node, t.TopologyKey, -count*int64(t.Weight))
		}
	}
	if c.countOthers && p.HasPodAffinity() {
		c.addOtherPod(node, p, count)
	}
	return c.hasScores || len(c.preference) == 0
}

// addOtherPod counts the terms of another Pod that select this one.
func (c *podRelations) addOtherPod(node *corev1.Node, p *framework.PodInfo, by int64) {
	if c.requiredWeight > 0 {
		for i := range p.Affinity {
			if t := &p.Affinity[i]; t.Matches(c.pod.Pod, c.namespaceLabels) {
				c.preference.add(node, t.TopologyKey, by*c.requiredWeight)
			}
		}
	}
	for i := range p.PreferAffinity {
		if t := &p.PreferAffinity[i]; t.Matches(c.pod.Pod, c.namespaceLabels) {
			c.preference.add(node, t.TopologyKey, by*int64(t.Weight))
		}
	}
	for i := range p.PreferAntiAffinity {
		if t := &p.PreferAntiAffinity[i]; t.Matches(c.pod.Pod, c.namespaceLabels) {
			c.preference.add(node, t.TopologyKey, -by*int64(t.Weight))
		}
	}
}

func (a *podAffinity) filter(c *podRelations, node *corev1.Node) *framework.Rejection {
	if len(c.terms.affinity) > 0 {
		together := true
		for i := range c.terms.affinity {
			key := c.terms.affinity[i].TopologyKey
			value, has := node.Labels[key]
			if !has {
				return a.affinityUnmet
			}
			together = together && c.affinityMatches[key][value] > 0
		}
		// The first Pod of a group that requires each other may be scheduled anywhere.
		if !together && (len(c.affinityMatches) > 0 || !c.matchesItself) {
			return a.affinityUnmet
		}
	}
	for i := range c.terms.antiAffinity {
		key := c.terms.antiAffinity[i].TopologyKey
		if value, has := node.Labels[key]; has && c.antiAffinityMatches[key][value] > 0 {
			return a.antiAffinityUnmet
		}
	}
	for key, values := range c.existingAntiAffinity {
		if value, has := node.Labels[key]; has && values[value] > 0 {
			return a.existingAntiAffinityUnmet
		}
	}
	return nil
}

func (c *podRelations) score(n *framework.NodeInfo) (sum int64) {
	for key, values := range c.preference {
		if value, has := n.Node.Labels[key]; has {
			sum += values[value]
		}
	}
	return sum
}

// normalizeRange maps scores to 0..MaxScore, the lowest to 0 and the highest to MaxScore.
func normalizeRange(scores []int64) {
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range scores {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	for i, v := range scores {
		scores[i] = 0
		if highest > lowest {
			scores[i] = int64(framework.MaxScore * (float64(v-lowest) / float64(highest-lowest)))
		}
	}
}

// matchAll reports whether all terms select a Pod.
func matchAll(terms []framework.AffinityTerm, pod *corev1.Pod) bool {
	for i := range terms {
		if !terms[i].Matches(pod, nil) {
			return false
		}
	}
	return true
}

// labelsOfNamespace returns the labels of a namespace.
func labelsOfNamespace(c framework.Cluster, namespace string) labels.Set {
	if c == nil {
		return nil
	}
	o, found := c.Get(gr.Namespaces, "", namespace)
	if !found {
		return nil
	}
	return o.GetLabels()
}

// termsOf returns the affinity terms of a Pod with namespace selectors resolved to names, so that they are evaluated
// only once.
func termsOf(c framework.Cluster, p *framework.PodInfo) (w podTerms) {
	for i := range p.Affinity {
		w.affinity = append(w.affinity, resolveNamespaces(c, p.Affinity[i]))
	}
	for i := range p.AntiAffinity {
		w.antiAffinity = append(w.antiAffinity, resolveNamespaces(c, p.AntiAffinity[i]))
	}
	for _, t := range p.PreferAffinity {
		w.preferredAffinity = append(w.preferredAffinity,
			framework.WeightedAffinityTerm{AffinityTerm: resolveNamespaces(c, t.AffinityTerm), Weight: t.Weight})
	}
	for _, t := range p.PreferAntiAffinity {
		w.preferredAntiAffinity = append(w.preferredAntiAffinity,
			framework.WeightedAffinityTerm{AffinityTerm: resolveNamespaces(c, t.AffinityTerm), Weight: t.Weight})
	}
	return w
}

// resolveNamespaces returns a term with its namespace selector replaced by the names of the selected namespaces. An
// empty selector, which selects all namespaces, is kept.
func resolveNamespaces(c framework.Cluster, t framework.AffinityTerm) framework.AffinityTerm {
	if t.NamespaceSelector.Empty() {
		return t
	}
	t.Namespaces = t.Namespaces.Clone()
	if c != nil {
		for o := range c.List(gr.Namespaces, "") {
			if t.NamespaceSelector.Matches(labels.Set(o.GetLabels())) {
				t.Namespaces.Insert(o.GetName())
			}
		}
	}
	t.NamespaceSelector = labels.Nothing()
	return t
}

// NewPodAffinity returns the plugin InterPodAffinity.
func NewPodAffinity(deps framework.Deps, raw json.RawMessage) (framework.Plugin, error) {
	var args configv1.InterPodAffinityArgs
	if err := framework.DecodeArgs(raw, &args); err != nil {
		return framework.Plugin{}, err
	}
	if args.HardPodAffinityWeight == nil {
		args.HardPodAffinityWeight = new(int32(1))
	}
	if w := *args.HardPodAffinityWeight; w < 0 || w > 100 {
		return framework.Plugin{}, field.Invalid(field.NewPath("hardPodAffinityWeight"), w, "not in valid range [0, 100]")
	}
	return newPodAffinity(podAffinityArgs{HardWeight: int64(*args.HardPodAffinityWeight),
		IgnoreOthers: args.IgnorePreferredTermsOfExistingPods}, deps.Views), nil
}
