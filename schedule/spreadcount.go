package schedule

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// spreadCount are the pods that the rules of a pod are about, counted in every domain. It is kept true by being told of
// pods that come and go, so that only the first of many equal pods costs a look at all pods.
type spreadCount struct {
	pod        *corev1.Pod
	hard, soft []spreadDomains
	// strict says that a node must have the keys of all soft rules to be scored.
	strict    bool
	selectors []labels.Selector // those of the rules, each once
	stamp     int               // of the last search in seen of the soft rules
}

// spreadDomains are the domains of one rule.
type spreadDomains struct {
	spreadRule
	which int              // its selector
	self  int              // 1 if the pod itself counts
	seats []seat           // by slot
	alone bool             // every node is a domain of its own, with the number of its slot
	names map[string]int32 // domains, while they are being found
	count []int
	in    []bool // domains with a node that counts
	seen  []int  // by domain, the last search that found it
	bare  int    // the last that found a node without key
	// size domains have a node that counts. least is the smallest number of pods in one of them, which atLeast have.
	size, least, atLeast int
}

// seat is the place of a node in a topology.
type seat struct {
	domain int32 // -1 if it has no key
	counts bool
}

func newSpreadCount(pod *corev1.Pod, hard, soft []spreadRule, strict bool) *spreadCount {
	c := &spreadCount{pod: pod, strict: strict}
	var texts []string
	domains := func(rules []spreadRule) (out []spreadDomains) {
		for _, r := range rules {
			d := spreadDomains{spreadRule: r}
			text := r.selector.String()
			if d.which = slices.Index(texts, text); d.which < 0 {
				d.which = len(texts)
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

// fill counts all pods of a snapshot.
func (c *spreadCount) fill(s *Snapshot) {
	wants := nodeaffinity.GetRequiredNodeAffinity(c.pod)
	for i := range c.hard {
		c.hard[i].open(s.slotCount(), false)
	}
	for i := range c.soft {
		c.soft[i].open(s.slotCount(), c.soft[i].key == corev1.LabelHostname)
	}
	found := make([]int, len(c.selectors))
	for n := range s.All() {
		for i, selector := range c.selectors {
			found[i] = countMatching(n, selector, c.pod.Namespace)
		}
		complete := hasKeys(n, c.hard)
		for i := range c.hard {
			d := &c.hard[i]
			d.place(n, complete && d.eligible(c.pod, wants, n), found[d.which])
		}
		complete = !c.strict || hasKeys(n, c.soft)
		for i := range c.soft {
			d := &c.soft[i]
			d.place(n, d.alone || complete && d.eligible(c.pod, wants, n), found[d.which])
		}
	}
	for i := range c.hard {
		c.hard[i].names = nil
		c.hard[i].settle()
	}
	for i := range c.soft {
		c.soft[i].names = nil
	}
}

// open makes room for the nodes.
func (d *spreadDomains) open(slots int, alone bool) {
	d.seats, d.alone, d.names = make([]seat, slots), alone, map[string]int32{}
	if alone {
		d.count, d.in, d.seen = make([]int, slots), make([]bool, slots), make([]int, slots)
	}
}

func hasKeys(n *NodeInfo, all []spreadDomains) bool {
	for i := range all {
		if _, has := n.Node.Labels[all[i].key]; !has {
			return false
		}
	}
	return true
}

// countMatching counts the pods of a node that a selector is about. Pods on their way out do not count, and a selector of
// everything is about nobody.
func countMatching(n *NodeInfo, selector labels.Selector, namespace string) (count int) {
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

// place gives a node its seat.
func (d *spreadDomains) place(n *NodeInfo, counts bool, pods int) {
	value, has := n.Node.Labels[d.key]
	if !has {
		d.seats[n.Slot] = seat{domain: -1}
		return
	}
	at := int32(n.Slot)
	if !d.alone {
		var known bool
		if at, known = d.names[value]; !known {
			at = int32(len(d.count))
			d.names[value] = at
			d.count, d.in, d.seen = append(d.count, 0), append(d.in, false), append(d.seen, 0)
		}
	}
	d.seats[n.Slot] = seat{at, counts}
	if !counts {
		return
	}
	d.count[at] += pods
	if !d.in[at] {
		d.in[at] = true
		d.size++
	}
}

// settle finds the smallest domain.
func (d *spreadDomains) settle() {
	d.least, d.atLeast = math.MaxInt32, 0
	for i, n := range d.count {
		switch {
		case !d.in[i] || n > d.least:
		case n < d.least:
			d.least, d.atLeast = n, 1
		default:
			d.atLeast++
		}
	}
}

// update counts a pod that came to a node or left it.
func (c *spreadCount) update(n *NodeInfo, p *PodInfo, by int) bool {
	if p.Pod.Namespace != c.pod.Namespace || p.Pod.DeletionTimestamp != nil {
		return true
	}
	for which, selector := range c.selectors {
		if selector.Empty() || !selector.Matches(labels.Set(p.Pod.Labels)) {
			continue
		}
		for i := range c.hard {
			if d := &c.hard[i]; d.which == which {
				d.add(n, by)
			}
		}
		for i := range c.soft {
			if d := &c.soft[i]; d.which == which && d.seats[n.Slot].counts {
				d.count[d.seats[n.Slot].domain] += by
			}
		}
	}
	return true
}

// add changes the count of a domain, and finds the smallest again if that may have become another.
func (d *spreadDomains) add(n *NodeInfo, by int) {
	at := d.seats[n.Slot]
	if !at.counts {
		return
	}
	was := d.count[at.domain]
	is := was + by
	d.count[at.domain] = is
	switch {
	case is < d.least:
		d.least, d.atLeast = is, 1
	case is == d.least:
		d.atLeast++
	case was == d.least:
		if d.atLeast--; d.atLeast == 0 {
			d.settle()
		}
	}
}

// score gives the nodes with the fewest like pods around them the most. A count in a topology of few domains is worth less
// than one of many, so that the small do not drown in the large.
func (c *spreadCount) score(nodes []*NodeInfo, scores []int64) {
	c.stamp++
	sizes := make([]int, len(c.soft))
	placed := 0
	for _, n := range nodes {
		if c.ignores(n) {
			continue
		}
		placed++
		for i := range c.soft {
			sizes[i] += c.soft[i].see(n, c.stamp)
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
		if c.ignores(n) {
			scores[i] = -1
			continue
		}
		var sum float64
		for j := range c.soft {
			if d := &c.soft[j]; d.seats[n.Slot].domain >= 0 {
				sum += float64(d.count[d.seats[n.Slot].domain])*weights[j] + float64(d.skew-1)
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
			scores[i] = MaxScore
		default:
			scores[i] = MaxScore * (largest + smallest - v) / largest
		}
	}
}

// ignores says that a node is not scored because it lacks a key.
func (c *spreadCount) ignores(n *NodeInfo) bool {
	return c.strict && c.lacksKey(n)
}

func (c *spreadCount) lacksKey(n *NodeInfo) bool {
	for i := range c.soft {
		if c.soft[i].seats[n.Slot].domain < 0 {
			return true
		}
	}
	return false
}

// see is 1 if the domain of a node was not found before in a search. Nodes without a key share one.
func (d *spreadDomains) see(n *NodeInfo, search int) int {
	last := &d.bare
	if at := d.seats[n.Slot].domain; at >= 0 {
		last = &d.seen[at]
	}
	if *last == search {
		return 0
	}
	*last = search
	return 1
}
