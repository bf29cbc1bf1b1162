package schedule

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
)

// PodAffinityArgs are the arguments of PodAffinity.
type PodAffinityArgs struct {
	// HardWeight is what it is worth to be where pods are that require this one.
	HardWeight int64
	// OwnOnly says that the wishes of pods on nodes do not count for a pod that has none.
	OwnOnly bool
}

// PodAffinity lets a pod only where the pods are that it requires, and where it and those around stand each other. now gives
// the namespaces for hints about pods that wait.
func PodAffinity(args PodAffinityArgs, now Cluster) Plugin {
	a := &podAffinity{
		args: args, now: now,
		lonely: NotEver("node(s) didn't match pod affinity rules"),
		hated:  No("node(s) didn't match pod anti-affinity rules"),
		hating: No("node(s) didn't satisfy existing pods anti-affinity rules"),
	}
	return Plugin{
		Name:  "InterPodAffinity",
		Reads: []schema.GroupResource{gr.Namespaces},
		Wakes: []Wake{
			{On: AssignedPod, Do: Add | PodLabel | Delete, If: a.podMatters},
			{On: TargetPod, Do: PodLabel},
			{On: NodeResource, Do: Add | NodeLabel, If: a.nodeMatters},
		},
		Prepare: a.prepare,
	}
}

type podAffinity struct {
	args                  PodAffinityArgs
	now                   Cluster
	lonely, hated, hating *Verdict
}

// company is what a pod and the pods in the cluster want of each other, counted by the topologies they name.
type company struct {
	pod    *PodInfo
	spaces labels.Set // the labels of its namespace
	own    wishes
	// met are pods that all required terms are about, found those that some term shuns, and shunning those that shun the
	// pod. worth is the sum of what is preferred.
	met, found, shunning, worth domainCounts
	// hard is what a required term of another pod is worth; scores says that worth is counted.
	hard   int64
	scores bool
	others bool // the preferences of others count
	alone  bool // the pod itself is one that it requires
}

// wishes are the terms of a pod, with namespaces looked up.
type wishes struct {
	need, avoid  []Term
	prefer, shun []WeightedTerm
}

// domainCounts are numbers by the key and the value of a label. What comes to 0 is not in it.
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

func (a *podAffinity) prepare(s *Snapshot, p *PodInfo) Prepared {
	c := &company{
		pod: p, spaces: spaceLabels(s.Cluster, p.Pod.Namespace), own: ownWishes(s.Cluster, p), hard: a.args.HardWeight,
		met: domainCounts{}, found: domainCounts{}, shunning: domainCounts{}, worth: domainCounts{},
	}
	prefers := len(c.own.prefer)+len(c.own.shun) > 0
	c.others = prefers || !a.args.OwnOnly
	c.scores = true // until it is known that there is nothing to score
	c.alone = len(c.own.need) > 0 && allMatch(c.own.need, p.Pod)
	c.fill(s, prefers)
	c.scores = prefers || len(c.worth) > 0
	out := Prepared{Reuse: WhileTold, Update: c.update, Filter: func(n *NodeInfo) *Verdict { return a.filter(c, n.Node) }}
	if c.scores {
		out.Score = c.score
		out.Normalize = func(_ []*NodeInfo, scores []int64) { stretch(scores) }
	}
	return out
}

// fill counts the pods of a snapshot. Who wants nothing of others needs only those that want something.
func (c *company) fill(s *Snapshot, prefers bool) {
	if prefers || len(c.own.need)+len(c.own.avoid) > 0 {
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

// update counts a pod that came or went. It returns false if there is now something to score, and was not before.
func (c *company) update(n *NodeInfo, p *PodInfo, by int) bool {
	node, count := n.Node, int64(by)
	if len(c.own.need) > 0 && allMatch(c.own.need, p.Pod) {
		for i := range c.own.need {
			c.met.add(node, c.own.need[i].TopologyKey, count)
		}
	}
	for i := range c.own.avoid {
		if t := &c.own.avoid[i]; t.Matches(p.Pod, nil) {
			c.found.add(node, t.TopologyKey, count)
		}
	}
	for i := range p.AntiAffinity {
		if t := &p.AntiAffinity[i]; t.Matches(c.pod.Pod, c.spaces) {
			c.shunning.add(node, t.TopologyKey, count)
		}
	}
	for i := range c.own.prefer {
		if t := &c.own.prefer[i]; t.Matches(p.Pod, nil) {
			c.worth.add(node, t.TopologyKey, count*int64(t.Weight))
		}
	}
	for i := range c.own.shun {
		if t := &c.own.shun[i]; t.Matches(p.Pod, nil) {
			c.worth.add(node, t.TopologyKey, -count*int64(t.Weight))
		}
	}
	if c.others && p.affine() {
		c.addOther(node, p, count)
	}
	return c.scores || len(c.worth) == 0
}

// addOther counts what another pod thinks of this one.
func (c *company) addOther(node *corev1.Node, p *PodInfo, by int64) {
	if c.hard > 0 {
		for i := range p.Affinity {
			if t := &p.Affinity[i]; t.Matches(c.pod.Pod, c.spaces) {
				c.worth.add(node, t.TopologyKey, by*c.hard)
			}
		}
	}
	for i := range p.PreferAffinity {
		if t := &p.PreferAffinity[i]; t.Matches(c.pod.Pod, c.spaces) {
			c.worth.add(node, t.TopologyKey, by*int64(t.Weight))
		}
	}
	for i := range p.PreferAntiAffinity {
		if t := &p.PreferAntiAffinity[i]; t.Matches(c.pod.Pod, c.spaces) {
			c.worth.add(node, t.TopologyKey, -by*int64(t.Weight))
		}
	}
}

func (a *podAffinity) filter(c *company, node *corev1.Node) *Verdict {
	if len(c.own.need) > 0 {
		together := true
		for i := range c.own.need {
			key := c.own.need[i].TopologyKey
			value, has := node.Labels[key]
			if !has {
				return a.lonely
			}
			together = together && c.met[key][value] > 0
		}
		// The first of a group that requires each other may go anywhere.
		if !together && (len(c.met) > 0 || !c.alone) {
			return a.lonely
		}
	}
	for i := range c.own.avoid {
		key := c.own.avoid[i].TopologyKey
		if value, has := node.Labels[key]; has && c.found[key][value] > 0 {
			return a.hated
		}
	}
	for key, values := range c.shunning {
		if value, has := node.Labels[key]; has && values[value] > 0 {
			return a.hating
		}
	}
	return nil
}

func (c *company) score(n *NodeInfo) (sum int64) {
	for key, values := range c.worth {
		if value, has := n.Node.Labels[key]; has {
			sum += values[value]
		}
	}
	return sum
}

// stretch brings scores into 0..MaxScore, the lowest to 0 and the highest to the other end.
func stretch(scores []int64) {
	lowest, highest := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range scores {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	for i, v := range scores {
		scores[i] = 0
		if highest > lowest {
			scores[i] = int64(MaxScore * (float64(v-lowest) / float64(highest-lowest)))
		}
	}
}

// allMatch says that all of some terms are about a pod.
func allMatch(terms []Term, pod *corev1.Pod) bool {
	for i := range terms {
		if !terms[i].Matches(pod, nil) {
			return false
		}
	}
	return true
}

// spaceLabels are the labels of a namespace.
func spaceLabels(c Cluster, namespace string) labels.Set {
	if c == nil {
		return nil
	}
	o, found := c.Get(gr.Namespaces, "", namespace)
	if !found {
		return nil
	}
	return o.GetLabels()
}

// ownWishes are the terms of a pod with their namespaces by name, so that nobody has to look them up for each pod.
func ownWishes(c Cluster, p *PodInfo) (w wishes) {
	for i := range p.Affinity {
		w.need = append(w.need, settled(c, p.Affinity[i]))
	}
	for i := range p.AntiAffinity {
		w.avoid = append(w.avoid, settled(c, p.AntiAffinity[i]))
	}
	for _, t := range p.PreferAffinity {
		w.prefer = append(w.prefer, WeightedTerm{settled(c, t.Term), t.Weight})
	}
	for _, t := range p.PreferAntiAffinity {
		w.shun = append(w.shun, WeightedTerm{settled(c, t.Term), t.Weight})
	}
	return w
}

// settled is a term with the namespaces that its selector finds now. A selector of everything stays, for it finds all.
func settled(c Cluster, t Term) Term {
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
