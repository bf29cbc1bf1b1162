package schedule

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/schedule/framework"
)

// Decide chooses a node for a Pod. It is a pure function: the same arguments give the same decision, but for ScoredAt.
func Decide(s *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, seed framework.Seed) framework.Decision {
	return preparePod(s, pod, profile).decide(s, pod, seed, false)
}

// Explain decides like Decide, and adds the scores of every plugin for every feasible node. It does not call extenders.
func Explain(s *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile, seed framework.Seed) framework.Decision {
	return preparePod(s, pod, profile).decide(s, pod, seed, true)
}

// preparedPod is a Pod with the prepared plugins and cached results of nodes, for the Pod and those equal to it.
type preparedPod struct {
	profile  *framework.Profile
	plugins  []framework.PreparedPlugin
	scorers  []int               // indexes of the plugins that score
	scoredBy []*framework.Plugin // the plugins that score
	uncached []int32             // indexes of the plugins whose Filter results cannot be cached
	// reusable reports that all plugins allow their Prepared to be used for equal Pods.
	reusable   bool
	rejection  *framework.Rejection
	rejectedBy string
	nodes      sets.Set[string]
	limitedBy  sets.Set[string] // names of the plugins that limit the nodes

	// layout and the generations are those of the snapshot that the plugins are prepared for.
	layout          uint64
	imageGeneration uint64
	podGeneration   uint64
	deadline        time.Time           // after it the search for nodes ends; zero for none
	cached          bool                // it is kept for equal Pods, so results of nodes are cached
	results         []nodeResult        // by slot
	rawScores       []int64             // scores before Normalize, by slot and scorer
	lastFailure     framework.Decision  // the decision about the last Pod without feasible node
	lastFailureAt   *framework.Snapshot // the snapshot of lastFailure
	// The fields below are those of the last decision.
	feasible []*framework.NodeInfo
	totals   []int64 // of the feasible nodes
	byPlugin []int64 // the scores before weighting, by scorer and feasible node, but for those that are in rawScores
	chosen   int     // index of the chosen node in feasible
	scratch  []int64
}

// nodeResult is the cached result of one node. It is valid for one generation of the node.
type nodeResult struct {
	generation uint64
	rejectedBy int32 // index of the plugin that rejects the node, if rejection is not nil
	scored     bool
	rejection  *framework.Rejection
	fixedScore int64 // the weighted sum of the scores without Normalize
}

// preparePod calls Prepare of all plugins of a profile.
func preparePod(s *framework.Snapshot, pod *framework.PodInfo, profile *framework.Profile) *preparedPod {
	c := &preparedPod{profile: profile, plugins: make([]framework.PreparedPlugin, 0, len(profile.Plugins)), reusable: true,
		layout: s.Layout, imageGeneration: s.ImageGeneration, podGeneration: s.PodGeneration}
	var limited bool
	for i := range profile.Plugins {
		pl := &profile.Plugins[i]
		if pl.Prepare == nil {
			continue
		}
		p := framework.PreparedPlugin{Plugin: pl, Prepared: pl.Prepare(s, pod)}
		c.reusable = c.reusable && p.Reuse != framework.ReuseNever
		c.plugins = append(c.plugins, p)
		if p.Reuse != framework.ReuseWhileNodeUnchanged && p.Filter != nil {
			c.uncached = append(c.uncached, int32(len(c.plugins)-1))
		}
		if p.Score != nil && pl.Weight != 0 {
			c.scorers, c.scoredBy = append(c.scorers, len(c.plugins)-1), append(c.scoredBy, pl)
		}
		if p.Reject != nil {
			c.rejection, c.rejectedBy = p.Reject, pl.Name
			if p.Reject.Unresolvable || p.Reject.Err != nil {
				return c
			}
			continue
		}
		if p.Nodes == nil {
			continue
		}
		if !limited {
			c.nodes, c.limitedBy = p.Nodes, sets.New(pl.Name)
			limited = true
		} else {
			c.nodes = c.nodes.Intersection(p.Nodes)
			c.limitedBy.Insert(pl.Name)
		}
		if len(c.nodes) == 0 {
			c.rejection, c.rejectedBy = framework.Unresolvable(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously",
				sets.List(c.limitedBy))), ""
			if len(c.limitedBy) == 1 {
				c.rejection = framework.Unresolvable("node(s) didn't satisfy plugin " + pl.Name)
			}
			return c
		}
	}
	return c
}

func (c *preparedPod) decide(s *framework.Snapshot, pod *framework.PodInfo, seed framework.Seed, explain bool) framework.Decision {
	d := framework.Decision{Seed: seed, Total: s.Len(), Prepared: c.plugins}
	if d.Total == 0 {
		return d
	}
	if c.rejection != nil {
		d.PodRejection, d.Err = c.rejection, c.rejection.Err
		if c.rejectedBy != "" {
			d.AddRejectingPlugin(c.rejectedBy, c.rejection)
		} else {
			d.RejectedBy = c.limitedBy.Clone()
		}
		return d
	}
	if n := s.SlotCount(); c.cached && len(c.results) < n {
		c.results = append(c.results, make([]nodeResult, n-len(c.results))...)
		c.rawScores = append(c.rawScores, make([]int64, n*len(c.scorers)-len(c.rawScores))...)
	}
	if nominee := s.Node(pod.Pod.Status.NominatedNodeName); nominee != nil && (c.nodes == nil || c.nodes.Has(nominee.Name())) {
		if r, _ := c.filter(s, pod, nominee); r == nil {
			c.feasible = append(c.feasible[:0], nominee)
			if c.filterByExtenders(pod, &d); d.Err == nil && len(c.feasible) == 1 {
				d.Node, d.Examined, d.Feasible = nominee.Name(), 1, 1
				return d
			}
			d = framework.Decision{Seed: seed, Total: s.Len(), Prepared: c.plugins}
		}
	}
	c.search(s, pod, &d)
	if !explain && d.Err == nil { // extenders are not called to explain a decision
		c.filterByExtenders(pod, &d)
	}
	if d.Err != nil || len(c.feasible) == 0 {
		return d
	}
	d.Feasible = len(c.feasible)
	if d.Feasible == 1 && !explain {
		d.Node = c.feasible[0].Name()
		return d
	}
	d.ScoredAt = time.Now()
	c.score(&d, explain)
	if !explain {
		c.scoreByExtenders(pod)
	}
	c.chosen = c.best(seed.Tie)
	d.Node, d.Score = c.feasible[c.chosen].Name(), c.totals[c.chosen]
	return d
}

// search finds the feasible nodes, and adds the rejections of the others to the decision.
func (c *preparedPod) search(s *framework.Snapshot, pod *framework.PodInfo, d *framework.Decision) {
	c.feasible = c.feasible[:0]
	var lastRejecting string
	examine := func(n *framework.NodeInfo) bool {
		if !c.deadline.IsZero() && time.Now().After(c.deadline) {
			if len(c.feasible) == 0 { // or one of those is good enough
				d.Err = errTooSlow
			}
			return false
		}
		d.Examined++
		r, by := c.filter(s, pod, n)
		if r == nil {
			c.feasible = append(c.feasible, n)
			return true
		}
		d.Rejections = append(d.Rejections, framework.NodeRejection{Node: n.Name(), Plugin: by, Rejection: r})
		if r.Err != nil && d.Err == nil {
			d.Err = fmt.Errorf("running %q filter plugin: %w", by, r.Err)
		}
		if by != lastRejecting || r.Pending { // most nodes are rejected by the same plugin
			d.AddRejectingPlugin(by, r)
			lastRejecting = by
		}
		return r.Err == nil
	}
	if c.nodes != nil {
		d.RejectedBy = c.limitedBy.Clone()
		d.RestRejection = framework.Unresolvable(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(c.limitedBy)))
		for _, name := range sets.List(c.nodes) {
			if n := s.Node(name); n != nil && !examine(n) {
				return
			}
		}
		return
	}
	enough := c.profile.NodesToFind(d.Total)
	if len(c.scorers) == 0 && !c.profile.HasNodeExtenders() {
		enough = 1
	}
	at := d.Seed.Start % d.Total
	for range d.Total {
		if !examine(s.At(at)) || len(c.feasible) >= enough {
			return
		}
		if at++; at == d.Total {
			at = 0
		}
	}
}

// filter calls Filter of all plugins for a node, and returns the first rejection with its plugin. The node must be
// feasible with the competing Pods that are nominated for it, and without them, since they may be bound to other nodes.
func (c *preparedPod) filter(s *framework.Snapshot, pod *framework.PodInfo, n *framework.NodeInfo) (*framework.Rejection, string) {
	if nominees := s.CompetingNominees(n, pod); len(nominees) > 0 {
		if r, by := c.filterWithNominees(s, pod, n, nominees); r != nil {
			return r, by
		}
	}
	if !c.cached {
		return c.filterUncached(n)
	}
	cell := c.resultOf(n)
	for _, i := range c.uncached { // the first rejection in the order of plugins counts
		if cell.rejection != nil && cell.rejectedBy < i {
			break
		}
		if p := &c.plugins[i]; p.Filter != nil {
			if rejection := p.Filter(n); rejection != nil {
				return rejection, p.Name
			}
		}
	}
	if cell.rejection != nil {
		return cell.rejection, c.plugins[cell.rejectedBy].Name
	}
	return nil, ""
}

// filterUncached calls Filter of all plugins for a node without using cached results.
func (c *preparedPod) filterUncached(n *framework.NodeInfo) (*framework.Rejection, string) {
	for i := range c.plugins {
		if p := &c.plugins[i]; p.Filter != nil {
			if r := p.Filter(n); r != nil {
				return r, p.Name
			}
		}
	}
	return nil, ""
}

// filterWithNominees filters a node as if more Pods were on it.
func (c *preparedPod) filterWithNominees(s *framework.Snapshot, pod *framework.PodInfo, n *framework.NodeInfo,
	more []*framework.PodInfo) (*framework.Rejection, string) {
	t := framework.NewDryRun(s, pod, c.plugins, n)
	defer t.End()
	for _, p := range more {
		t.AddPod(p)
	}
	return t.Filter()
}

// resultOf returns the cached result of a node, and computes it if there is none for the node's generation.
func (c *preparedPod) resultOf(n *framework.NodeInfo) *nodeResult {
	k := &c.results[n.Slot]
	if k.generation == n.Generation && n.Generation != 0 {
		return k
	}
	*k = nodeResult{generation: n.Generation}
	for i := range c.plugins {
		p := &c.plugins[i]
		if p.Reuse != framework.ReuseWhileNodeUnchanged || p.Filter == nil {
			continue
		}
		if r := p.Filter(n); r != nil {
			k.rejection, k.rejectedBy = r, int32(i)
			return k
		}
	}
	return k
}
