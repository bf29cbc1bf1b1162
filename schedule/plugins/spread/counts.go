package spread

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa.dev/schedule/framework"
)

// podCounts has the number of Pods that the constraints of a Pod select, in every domain. It is updated when Pods are
// added or removed, so that only the first of many equal Pods has to count all Pods.
type podCounts struct {
	pod        *corev1.Pod
	hard, soft []domainCounts
	// strict says that only nodes with the topology keys of all soft constraints are scored.
	strict       bool
	selectors    []labels.Selector // the distinct selectors of the constraints
	searchNumber int               // the number of the last scoring, for seenIn
}

// domainCounts has the number of selected Pods in each domain of one constraint.
type domainCounts struct {
	constraint
	selectorIndex    int              // index in podCounts.selectors
	self             int              // 1 if the constraint selects the Pod itself
	nodes            []nodeDomain     // by slot
	perNode          bool             // every node is a domain of its own, numbered by its slot
	domainOf         map[string]int32 // number of the domain of a label value; nil after fill
	counts           []int
	hasEligibleNode  []bool // by domain
	seenIn           []int  // by domain, the last search that has found it
	unlabelledSeenIn int    // the last search that has found a node without the key
	// size is the number of domains with an eligible node, minimum the smallest count of one of them, and atMinimum how
	// many have it.
	size, minimum, atMinimum int
}

// nodeDomain is the domain of a node.
type nodeDomain struct {
	domain int32 // -1 if the node does not have the key
	counts bool  // the Pods of the node are counted
}

func newPodCounts(pod *corev1.Pod, hard, soft []constraint, strict bool) *podCounts {
	c := &podCounts{pod: pod, strict: strict}
	var texts []string
	domains := func(rules []constraint) (out []domainCounts) {
		for _, r := range rules {
			d := domainCounts{constraint: r}
			text := r.selector.String()
			if d.selectorIndex = slices.Index(texts, text); d.selectorIndex < 0 {
				d.selectorIndex = len(texts)
				texts, c.selectors = append(texts, text), append(c.selectors, r.selector)
			}
			if r.selector.Matches(labels.Set(pod.Labels)) {
				d.self = 1
			}
			out = append(out, d)
		}
		return out
	}
	c.hard, c.soft = domains(hard), domains(soft)
	return c
}

// fill counts all Pods of a snapshot.
func (c *podCounts) fill(s *framework.Snapshot) {
	wants := nodeaffinity.GetRequiredNodeAffinity(c.pod)
	for i := range c.hard {
		c.hard[i].allocate(s.SlotCount(), false)
	}
	for i := range c.soft {
		c.soft[i].allocate(s.SlotCount(), c.soft[i].key == corev1.LabelHostname)
	}
	found := make([]int, len(c.selectors))
	for n := range s.All() {
		for i, selector := range c.selectors {
			found[i] = countMatching(n, selector, c.pod.Namespace)
		}
		complete := hasTopologyKeys(n, c.hard)
		for i := range c.hard {
			d := &c.hard[i]
			d.addNode(n, complete && d.isEligible(c.pod, wants, n), found[d.selectorIndex])
		}
		complete = !c.strict || hasTopologyKeys(n, c.soft)
		for i := range c.soft {
			d := &c.soft[i]
			d.addNode(n, d.perNode || complete && d.isEligible(c.pod, wants, n), found[d.selectorIndex])
		}
	}
	for i := range c.hard {
		c.hard[i].domainOf = nil
		c.hard[i].findMinimum()
	}
	for i := range c.soft {
		c.soft[i].domainOf = nil
	}
}

// allocate allocates the slices for a number of slots.
func (d *domainCounts) allocate(slots int, alone bool) {
	d.nodes, d.perNode, d.domainOf = make([]nodeDomain, slots), alone, map[string]int32{}
	if alone {
		d.counts, d.hasEligibleNode, d.seenIn = make([]int, slots), make([]bool, slots), make([]int, slots)
	}
}

func hasTopologyKeys(n *framework.NodeInfo, all []domainCounts) bool {
	for i := range all {
		if _, has := n.Node.Labels[all[i].key]; !has {
			return false
		}
	}
	return true
}

// countMatching returns how many Pods of a node a selector selects. Terminating Pods are not counted, and an empty
// selector selects none.
func countMatching(n *framework.NodeInfo, selector labels.Selector, namespace string) (count int) {
	if selector.Empty() {
		return 0
	}
	for _, p := range n.Pods {
		if p.Pod.Namespace == namespace && p.Pod.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Pod.Labels)) {
			count++
		}
	}
	return count
}

// addNode adds a node and its selected Pods to its domain.
func (d *domainCounts) addNode(n *framework.NodeInfo, counts bool, pods int) {
	value, has := n.Node.Labels[d.key]
	if !has {
		d.nodes[n.Slot] = nodeDomain{domain: -1}
		return
	}
	at := int32(n.Slot)
	if !d.perNode {
		var known bool
		if at, known = d.domainOf[value]; !known {
			at = int32(len(d.counts))
			d.domainOf[value] = at
			d.counts, d.hasEligibleNode, d.seenIn = append(d.counts, 0), append(d.hasEligibleNode, false), append(d.seenIn, 0)
		}
	}
	d.nodes[n.Slot] = nodeDomain{at, counts}
	if !counts {
		return
	}
	d.counts[at] += pods
	if !d.hasEligibleNode[at] {
		d.hasEligibleNode[at] = true
		d.size++
	}
}

// findMinimum computes the smallest count of a domain.
func (d *domainCounts) findMinimum() {
	d.minimum, d.atMinimum = math.MaxInt32, 0
	for i, n := range d.counts {
		switch {
		case !d.hasEligibleNode[i] || n > d.minimum:
		case n < d.minimum:
			d.minimum, d.atMinimum = n, 1
		default:
			d.atMinimum++
		}
	}
}

// update counts a Pod that was added to a node or removed from it.
func (c *podCounts) update(n *framework.NodeInfo, p *framework.PodInfo, by int) bool {
	if p.Pod.Namespace != c.pod.Namespace || p.Pod.DeletionTimestamp != nil {
		return true
	}
	for which, selector := range c.selectors {
		if selector.Empty() || !selector.Matches(labels.Set(p.Pod.Labels)) {
			continue
		}
		for i := range c.hard {
			if d := &c.hard[i]; d.selectorIndex == which {
				d.add(n, by)
			}
		}
		for i := range c.soft {
			if d := &c.soft[i]; d.selectorIndex == which && d.nodes[n.Slot].counts {
				d.counts[d.nodes[n.Slot].domain] += by
			}
		}
	}
	return true
}

// add changes the count of the domain of a node, and updates the minimum.
func (d *domainCounts) add(n *framework.NodeInfo, by int) {
	at := d.nodes[n.Slot]
	if !at.counts {
		return
	}
	was := d.counts[at.domain]
	is := was + by
	d.counts[at.domain] = is
	switch {
	case is < d.minimum:
		d.minimum, d.atMinimum = is, 1
	case is == d.minimum:
		d.atMinimum++
	case was == d.minimum:
		if d.atMinimum--; d.atMinimum == 0 {
			d.findMinimum()
		}
	}
}

// score gives nodes in domains with fewer selected Pods higher scores. The counts are weighted by the number of
// domains, so that topologies with few domains, whose counts are larger, do not dominate.
func (c *podCounts) score(nodes []*framework.NodeInfo, scores []int64) {
	c.searchNumber++
	sizes := make([]int, len(c.soft))
	placed := 0
	for _, n := range nodes {
		if c.isIgnored(n) {
			continue
		}
		placed++
		for i := range c.soft {
			sizes[i] += c.soft[i].markSeen(n, c.searchNumber)
		}
	}
	weights := make([]float64, len(c.soft))
	for i := range c.soft {
		if c.soft[i].key == corev1.LabelHostname {
			sizes[i] = placed
		}
		weights[i] = math.Log(float64(sizes[i] + 2))
	}
	smallest, largest := int64(math.MaxInt64), int64(0)
	for i, n := range nodes {
		if c.isIgnored(n) {
			scores[i] = -1
			continue
		}
		var sum float64
		for j := range c.soft {
			if d := &c.soft[j]; d.nodes[n.Slot].domain >= 0 {
				sum += float64(d.counts[d.nodes[n.Slot].domain])*weights[j] + float64(d.maxSkew-1)
			}
		}
		scores[i] = int64(math.Round(sum))
		smallest, largest = min(smallest, scores[i]), max(largest, scores[i])
	}
	for i, v := range scores {
		switch {
		case v < 0:
			scores[i] = 0
		case largest == 0:
			scores[i] = framework.MaxScore
		default:
			scores[i] = framework.MaxScore * (largest + smallest - v) / largest
		}
	}
}

// isIgnored reports whether a node is not scored because it lacks a topology key.
func (c *podCounts) isIgnored(n *framework.NodeInfo) bool {
	return c.strict && c.lacksKey(n)
}

func (c *podCounts) lacksKey(n *framework.NodeInfo) bool {
	for i := range c.soft {
		if c.soft[i].nodes[n.Slot].domain < 0 {
			return true
		}
	}
	return false
}

// markSeen returns 1 if the domain of a node was not found before in a search. Nodes without the key share one domain.
func (d *domainCounts) markSeen(n *framework.NodeInfo, search int) int {
	last := &d.unlabelledSeenIn
	if at := d.nodes[n.Slot].domain; at >= 0 {
		last = &d.seenIn[at]
	}
	if *last == search {
		return 0
	}
	*last = search
	return 1
}
