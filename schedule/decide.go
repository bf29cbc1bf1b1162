package schedule

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Decide finds a node for a pod. It is pure: the same arguments give the same decision.
func Decide(s *Snapshot, pod *PodInfo, profile *Profile, seed Seed) Decision {
	return compile(s, pod, profile).decide(s, pod, seed, false)
}

// Explain is Decide with the scores of every plugin for every node.
func Explain(s *Snapshot, pod *PodInfo, profile *Profile, seed Seed) Decision {
	return compile(s, pod, profile).decide(s, pod, seed, true)
}

// Search ends when enough nodes are found: all of a small cluster, half of a larger one, and less of a very large one.
const (
	fewNodes   = 100
	minPercent = 5
)

// enough is the number of fitting nodes to find among n.
func (p *Profile) enough(n int) int {
	if n < fewNodes {
		return n
	}
	percent := int(p.Percentage)
	if percent == 0 {
		percent = max(50-n/125, minPercent)
	}
	return max(n*percent/100, fewNodes)
}

// compiled is a pod as all plugins have prepared it, with what is known about nodes from equal pods before it.
type compiled struct {
	profile *Profile
	parts   []part
	scorers []int   // parts that score
	told    []int32 // parts whose answers hold for one pod only
	// lasting says that all plugins let equal pods use what they prepared.
	lasting bool
	reject  *Verdict
	by      string
	nodes   sets.Set[string]
	limits  sets.Set[string] // plugins that set nodes

	layout   uint64
	images   uint64 // the state of images in the cluster
	seq      uint64
	known    bool      // it is kept for equal pods, so what is found out about nodes is noted
	cells    []cell    // by slot
	raws     []int64   // scores that want to be normalized: of slot and scorer
	failed   Decision  // of the last pod that fitted nowhere
	failedOn *Snapshot // where that was
	fit      []*NodeInfo
	totals   []int64
	scratch  []int64
}

type part struct {
	*Plugin
	Prepared
}

// cell is what is known about one node. It holds for one generation of it.
type cell struct {
	generation uint64
	by         int32 // the part that rejects the node, if verdict is set
	scored     bool
	verdict    *Verdict
	plain      int64 // the weighted sum of the scores that need no others
}

func compile(s *Snapshot, pod *PodInfo, profile *Profile) *compiled {
	c := &compiled{profile: profile, parts: make([]part, 0, len(profile.Plugins)), lasting: true, layout: s.Layout, images: s.pictures, seq: s.seq}
	var limited bool
	for i := range profile.Plugins {
		pl := &profile.Plugins[i]
		if pl.Prepare == nil {
			continue
		}
		p := part{pl, pl.Prepare(s, pod)}
		c.lasting = c.lasting && p.Reuse != Never
		c.parts = append(c.parts, p)
		if p.Reuse != WhileNode && p.Filter != nil {
			c.told = append(c.told, int32(len(c.parts)-1))
		}
		if p.Score != nil && pl.Weight != 0 {
			c.scorers = append(c.scorers, len(c.parts)-1)
		}
		if p.Reject != nil {
			c.reject, c.by = p.Reject, pl.Name
			if p.Reject.Unresolvable || p.Reject.Err != nil {
				return c
			}
			continue
		}
		if p.Nodes == nil {
			continue
		}
		if !limited {
			c.nodes, c.limits = p.Nodes, sets.New(pl.Name)
			limited = true
		} else {
			c.nodes = c.nodes.Intersection(p.Nodes)
			c.limits.Insert(pl.Name)
		}
		if len(c.nodes) == 0 {
			c.reject, c.by = NotEver(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", sets.List(c.limits))), ""
			if len(c.limits) == 1 {
				c.reject = NotEver("node(s) didn't satisfy plugin " + pl.Name)
			}
			return c
		}
	}
	return c
}

func (c *compiled) decide(s *Snapshot, pod *PodInfo, seed Seed, explain bool) Decision {
	d := Decision{Seed: seed, Total: s.Len(), parts: c.parts}
	if d.Total == 0 {
		return d
	}
	if c.reject != nil {
		d.Rejected, d.Err = c.reject, c.reject.Err
		if c.by != "" {
			d.blame(c.by, c.reject)
		} else {
			d.By = c.limits.Clone()
		}
		return d
	}
	if n := s.slotCount(); c.known && len(c.cells) < n {
		c.cells = append(c.cells, make([]cell, n-len(c.cells))...)
		c.raws = append(c.raws, make([]int64, n*len(c.scorers)-len(c.raws))...)
	}
	if nominee := s.Node(pod.Pod.Status.NominatedNodeName); nominee != nil && (c.nodes == nil || c.nodes.Has(nominee.Name())) {
		if v, _ := c.filter(s, pod, nominee); v == nil {
			c.fit = append(c.fit[:0], nominee)
			if c.askFilters(pod, &d); d.Err == nil && len(c.fit) == 1 {
				d.Node, d.Seen, d.Fits = nominee.Name(), 1, 1
				return d
			}
			d = Decision{Seed: seed, Total: s.Len(), parts: c.parts}
		}
	}
	c.search(s, pod, &d)
	if !explain && d.Err == nil { // to explain a decision nobody else is asked
		c.askFilters(pod, &d)
	}
	if d.Err != nil || len(c.fit) == 0 {
		return d
	}
	d.Fits = len(c.fit)
	if d.Fits == 1 && !explain {
		d.Node = c.fit[0].Name()
		return d
	}
	c.score(&d, explain)
	if !explain {
		c.askPriorities(pod)
	}
	d.Node, d.Score = c.best(seed.Tie)
	return d
}

// search fills c.fit, and the verdicts of the decision.
func (c *compiled) search(s *Snapshot, pod *PodInfo, d *Decision) {
	c.fit = c.fit[:0]
	var blamed string
	look := func(n *NodeInfo) bool {
		d.Seen++
		v, by := c.filter(s, pod, n)
		if v == nil {
			c.fit = append(c.fit, n)
			return true
		}
		d.Verdicts = append(d.Verdicts, NodeVerdict{n.Name(), by, v})
		if v.Err != nil && d.Err == nil {
			d.Err = fmt.Errorf("running %q filter plugin: %w", by, v.Err)
		}
		if by != blamed || v.Pending { // most nodes are rejected by the same
			d.blame(by, v)
			blamed = by
		}
		return v.Err == nil
	}
	if c.nodes != nil {
		d.By = c.limits.Clone()
		d.Rest = NotEver(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(c.limits)))
		for _, name := range sets.List(c.nodes) {
			if n := s.Node(name); n != nil && !look(n) {
				return
			}
		}
		return
	}
	enough := c.profile.enough(d.Total)
	if len(c.scorers) == 0 && !c.profile.extended() {
		enough = 1
	}
	at := d.Seed.Start % d.Total
	for range d.Total {
		if !look(s.At(at)) || len(c.fit) >= enough {
			return
		}
		if at++; at == d.Total {
			at = 0
		}
	}
}

// blame notes who said no.
func (d *Decision) blame(plugin string, v *Verdict) {
	into := &d.By
	if v.Pending {
		into = &d.Pending
	}
	if *into == nil {
		*into = sets.New[string]()
	}
	into.Insert(plugin)
}

// filter asks all plugins about a node. Pods that wait for room there and are not less important count as if they were there;
// the node must do without them, too, since they may go elsewhere.
func (c *compiled) filter(s *Snapshot, pod *PodInfo, n *NodeInfo) (*Verdict, string) {
	if len(s.nominated) > 0 {
		if waiting := s.rivals(n, pod); len(waiting) > 0 {
			if v, by := c.filterWith(s, pod, n, waiting); v != nil {
				return v, by
			}
		}
	}
	if !c.known {
		return c.ask(n)
	}
	cell := c.cell(n)
	for _, i := range c.told { // in the order of plugins the first to say no counts
		if cell.verdict != nil && cell.by < i {
			break
		}
		if p := &c.parts[i]; p.Filter != nil {
			if v := p.Filter(n); v != nil {
				return v, p.Name
			}
		}
	}
	if cell.verdict != nil {
		return cell.verdict, c.parts[cell.by].Name
	}
	return nil, ""
}

// ask asks all plugins about a node, whatever is known.
func (c *compiled) ask(n *NodeInfo) (*Verdict, string) {
	for i := range c.parts {
		if p := &c.parts[i]; p.Filter != nil {
			if v := p.Filter(n); v != nil {
				return v, p.Name
			}
		}
	}
	return nil, ""
}

// filterWith asks about a node as if more pods were on it.
func (c *compiled) filterWith(s *Snapshot, pod *PodInfo, n *NodeInfo, more []*PodInfo) (*Verdict, string) {
	t := newTrial(s, pod, c.parts, n)
	defer t.end()
	for _, p := range more {
		t.add(p)
	}
	return t.ask()
}

// rivals are the pods that wait for room on a node and come before this pod.
func (s *Snapshot) rivals(n *NodeInfo, pod *PodInfo) []*PodInfo {
	waiting := s.nominated[int32(n.Slot)]
	if len(waiting) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(waiting), func(w *PodInfo) bool {
		return w.Pod.UID == pod.Pod.UID || w.Priority() < pod.Priority()
	})
}

// cell is what is known about a node, found out now if it is not.
func (c *compiled) cell(n *NodeInfo) *cell {
	k := &c.cells[n.Slot]
	if k.generation == n.Generation && n.Generation != 0 {
		return k
	}
	*k = cell{generation: n.Generation}
	for i := range c.parts {
		p := &c.parts[i]
		if p.Reuse != WhileNode || p.Filter == nil {
			continue
		}
		if v := p.Filter(n); v != nil {
			k.verdict, k.by = v, int32(i)
			return k
		}
	}
	return k
}

// slotCount is the number of slots there may be.
func (s *Snapshot) slotCount() int { return len(s.chunks) * chunkSize }
