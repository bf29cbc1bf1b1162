package schedule

import (
	"slices"

	"proa.dev/schedule/framework"
)

// score computes the totals of the feasible nodes.
func (c *preparedPod) score(d *framework.Decision, explain bool) {
	c.totals = append(c.totals[:0], make([]int64, len(c.feasible))...)
	c.byPlugin = slices.Grow(c.byPlugin[:0], len(c.feasible)*len(c.scorers))[:len(c.feasible)*len(c.scorers)]
	if explain {
		d.Scores = make([]framework.NodeScores, len(c.feasible))
		for i, n := range c.feasible {
			d.Scores[i] = framework.NodeScores{Node: n.Name(), ByPlugin: make([]int64, 0, len(c.scorers))}
		}
	}
	if c.cached && !explain {
		for i, n := range c.feasible {
			c.totals[i] = c.scoredResultOf(n).fixedScore
		}
	}
	for nth, at := range c.scorers {
		p := &c.plugins[at]
		kept := c.cached && p.Reuse == framework.ReuseWhileNodeUnchanged && !explain
		if kept && p.Normalize == nil {
			continue // included in fixedScore
		}
		c.scratch = c.scratch[:0]
		for _, n := range c.feasible {
			if kept {
				c.scratch = append(c.scratch, c.rawScores[n.Slot*len(c.scorers)+nth])
			} else {
				c.scratch = append(c.scratch, p.Score(n))
			}
		}
		if p.Normalize != nil {
			p.Normalize(c.feasible, c.scratch)
		}
		copy(c.byPlugin[nth*len(c.feasible):], c.scratch)
		for i, v := range c.scratch {
			c.totals[i] += v * p.Weight
			if explain {
				d.Scores[i].ByPlugin = append(d.Scores[i].ByPlugin, v*p.Weight)
			}
		}
		if explain {
			d.ScoredBy = append(d.ScoredBy, p.Name)
		}
	}
	for i := range d.Scores {
		d.Scores[i].Total = c.totals[i]
	}
}

// scoredResultOf returns the cached result of a node with its scores. The result must be valid for the node's
// generation, which filter has ensured.
func (c *preparedPod) scoredResultOf(n *framework.NodeInfo) *nodeResult {
	k := &c.results[n.Slot]
	if k.scored {
		return k
	}
	k.scored = true
	for nth, at := range c.scorers {
		p := &c.plugins[at]
		if p.Reuse != framework.ReuseWhileNodeUnchanged {
			continue
		}
		v := p.Score(n)
		c.rawScores[n.Slot*len(c.scorers)+nth] = v
		if p.Normalize == nil {
			k.fixedScore += v * p.Weight
		}
	}
	return k
}

// appendScores appends what each plugin that scores gave to a feasible node in the last decision, before weighting.
func (c *preparedPod) appendScores(to []int64, i int) []int64 {
	for nth, at := range c.scorers {
		if p := &c.plugins[at]; c.cached && p.Reuse == framework.ReuseWhileNodeUnchanged && p.Normalize == nil {
			to = append(to, c.rawScores[c.feasible[i].Slot*len(c.scorers)+nth])
		} else {
			to = append(to, c.byPlugin[nth*len(c.feasible)+i])
		}
	}
	return to
}

// best returns the index of the feasible node with the highest score. Between equal scores the seed decides, independently of the order of
// the nodes.
func (c *preparedPod) best(tie uint64) int {
	at, luck := 0, mixBits(tie, c.feasible[0].Slot)
	for i := 1; i < len(c.feasible); i++ {
		if c.totals[i] < c.totals[at] {
			continue
		}
		l := mixBits(tie, c.feasible[i].Slot)
		if c.totals[i] > c.totals[at] || l > luck {
			at, luck = i, l
		}
	}
	return at
}

// mixBits returns a hash of a seed and a slot.
func mixBits(seed uint64, slot int) uint64 {
	x := seed + uint64(slot+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
