package schedule

// score fills c.totals for the nodes that fit.
func (c *compiled) score(d *Decision, explain bool) {
	c.totals = append(c.totals[:0], make([]int64, len(c.fit))...)
	if explain {
		d.Scores = make([]NodeScores, len(c.fit))
		for i, n := range c.fit {
			d.Scores[i] = NodeScores{Node: n.Name(), Each: make([]int64, 0, len(c.scorers))}
		}
	}
	if c.known && !explain {
		for i, n := range c.fit {
			c.totals[i] = c.scored(n).plain
		}
	}
	for nth, at := range c.scorers {
		p := &c.parts[at]
		kept := c.known && p.Reuse == WhileNode && !explain
		if kept && p.Normalize == nil {
			continue // in plain
		}
		c.scratch = c.scratch[:0]
		for _, n := range c.fit {
			if kept {
				c.scratch = append(c.scratch, c.raws[n.Slot*len(c.scorers)+nth])
			} else {
				c.scratch = append(c.scratch, p.Score(n))
			}
		}
		if p.Normalize != nil {
			p.Normalize(c.fit, c.scratch)
		}
		for i, v := range c.scratch {
			c.totals[i] += v * p.Weight
			if explain {
				d.Scores[i].Each = append(d.Scores[i].Each, v*p.Weight)
			}
		}
		if explain {
			d.Plugins = append(d.Plugins, p.Name)
		}
	}
	for i := range d.Scores {
		d.Scores[i].Total = c.totals[i]
	}
}

// scored is the cell of a node with its scores in it. filter has seen to the generation.
func (c *compiled) scored(n *NodeInfo) *cell {
	k := &c.cells[n.Slot]
	if k.scored {
		return k
	}
	k.scored = true
	for nth, at := range c.scorers {
		p := &c.parts[at]
		if p.Reuse != WhileNode {
			continue
		}
		v := p.Score(n)
		c.raws[n.Slot*len(c.scorers)+nth] = v
		if p.Normalize == nil {
			k.plain += v * p.Weight
		}
	}
	return k
}

// best is the node with the highest score. Which of several that is depends on the seed and the nodes, not on their order.
func (c *compiled) best(tie uint64) (string, int64) {
	at, luck := 0, mix(tie, c.fit[0].Slot)
	for i := 1; i < len(c.fit); i++ {
		if c.totals[i] < c.totals[at] {
			continue
		}
		l := mix(tie, c.fit[i].Slot)
		if c.totals[i] > c.totals[at] || l > luck {
			at, luck = i, l
		}
	}
	return c.fit[at].Name(), c.totals[at]
}

// mix makes a number of a seed and a slot in which all bits of both have a say.
func mix(seed uint64, slot int) uint64 {
	x := seed + uint64(slot+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// spread brings scores into 0..MaxScore by the largest of them. reverse makes the largest the worst.
func spread(scores []int64, reverse bool) {
	var largest int64
	for _, v := range scores {
		largest = max(largest, v)
	}
	for i, v := range scores {
		if largest > 0 {
			v = MaxScore * v / largest
		}
		if reverse {
			v = MaxScore - v
		}
		scores[i] = v
	}
}
