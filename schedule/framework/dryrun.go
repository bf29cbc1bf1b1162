package framework

// DryRun filters a node as if other Pods were on it. Prepared plugins with an Update function are updated, and End
// undoes that, so that the cost of a dry run does not depend on the size of the cluster.
type DryRun struct {
	base     *Snapshot
	pod      *PodInfo
	prepared []PreparedPlugin
	node     *NodeInfo // with the changes of the dry run
	original *NodeInfo
	changes  map[*PodInfo]int // what Update was called with
}

// NewDryRun begins a dry run of pod on a node. The caller must call End.
func NewDryRun(s *Snapshot, pod *PodInfo, prepared []PreparedPlugin, n *NodeInfo) *DryRun {
	copied := *n
	copied.Generation = 0
	return &DryRun{base: s, pod: pod, prepared: prepared, node: &copied, original: n, changes: map[*PodInfo]int{}}
}

// AddPod adds a Pod to the node.
func (d *DryRun) AddPod(p *PodInfo) {
	d.node.add(p, false)
	d.notify(p, 1)
}

// RemovePod removes a Pod from the node.
func (d *DryRun) RemovePod(p *PodInfo) {
	d.node.remove(p.Pod.UID)
	d.notify(p, -1)
}

// notify calls Update of the prepared plugins.
func (d *DryRun) notify(p *PodInfo, by int) {
	if d.changes[p] += by; d.changes[p] == 0 {
		delete(d.changes, p)
	}
	for i := range d.prepared {
		if pl := &d.prepared[i]; pl.Update != nil {
			pl.Update(d.original, p, by)
		}
	}
}

// Filter calls the Filter functions of all plugins, and returns the first rejection with the name of its plugin.
// Plugins that cannot be updated and do not read the node alone are prepared again.
func (d *DryRun) Filter() (*Rejection, string) {
	var derived *Snapshot
	for i := range d.prepared {
		p := d.prepared[i]
		if p.Reuse == ReuseNever && p.Update == nil {
			if derived == nil {
				derived = d.base.derive(d.node.Name(), func(n *NodeInfo) { *n = *d.node })
			}
			if p.Prepared = p.Prepare(derived, d.pod); p.Reject != nil {
				return p.Reject, p.Name
			}
		}
		if p.Filter != nil {
			if r := p.Filter(d.node); r != nil {
				return r, p.Name
			}
		}
	}
	return nil, ""
}

// FilterWithNominees filters the node with the competing Pods that are nominated for it, and then without them, since
// they may be bound to other nodes.
func (d *DryRun) FilterWithNominees() (*Rejection, string) {
	if rivals := d.base.CompetingNominees(d.original, d.pod); len(rivals) > 0 {
		for _, r := range rivals {
			d.AddPod(r)
		}
		rejection, by := d.Filter()
		for _, r := range rivals {
			d.RemovePod(r)
		}
		if rejection != nil {
			return rejection, by
		}
	}
	return d.Filter()
}

// End undoes the updates of the prepared plugins.
func (d *DryRun) End() {
	for p, by := range d.changes {
		d.notify(p, -by)
	}
}
