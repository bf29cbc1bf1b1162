package schedule

// trial asks about a node as if other pods were on it. Plugins that keep up with pods are told of them, and told the opposite
// when it is over, so that a trial costs little however large the cluster is.
type trial struct {
	base  *Snapshot
	pod   *PodInfo
	parts []part
	node  *NodeInfo // as it is in the trial
	real  *NodeInfo
	diff  map[*PodInfo]int
}

func newTrial(s *Snapshot, pod *PodInfo, parts []part, n *NodeInfo) *trial {
	copied := *n
	copied.Generation = 0
	return &trial{base: s, pod: pod, parts: parts, node: &copied, real: n, diff: map[*PodInfo]int{}}
}

func (t *trial) add(p *PodInfo) {
	t.node.add(p, false)
	t.tell(p, 1)
}

func (t *trial) remove(p *PodInfo) {
	t.node.remove(p.Pod.UID)
	t.tell(p, -1)
}

// tell says to the plugins that can be told what has changed.
func (t *trial) tell(p *PodInfo, by int) {
	if t.diff[p] += by; t.diff[p] == 0 {
		delete(t.diff, p)
	}
	for i := range t.parts {
		if part := &t.parts[i]; part.Update != nil {
			part.Update(t.real, p, by)
		}
	}
}

// ask asks all plugins. Those that cannot be told, and do not read the node alone, prepare anew.
func (t *trial) ask() (*Verdict, string) {
	var derived *Snapshot
	for i := range t.parts {
		p := t.parts[i]
		if p.Reuse == Never && p.Update == nil {
			if derived == nil {
				derived = t.base.derive(t.node.Name(), func(n *NodeInfo) { *n = *t.node })
			}
			if p.Prepared = p.Prepare(derived, t.pod); p.Reject != nil {
				return p.Reject, p.Name
			}
		}
		if p.Filter != nil {
			if v := p.Filter(t.node); v != nil {
				return v, p.Name
			}
		}
	}
	return nil, ""
}

// fits asks with the pods that wait for room on the node and come first, and without them, since they may go elsewhere.
func (t *trial) fits() (*Verdict, string) {
	if rivals := t.base.rivals(t.real, t.pod); len(rivals) > 0 {
		for _, r := range rivals {
			t.add(r)
		}
		v, by := t.ask()
		for _, r := range rivals {
			t.remove(r)
		}
		if v != nil {
			return v, by
		}
	}
	return t.ask()
}

// end takes back what plugins were told.
func (t *trial) end() {
	for p, by := range t.diff {
		t.tell(p, -by)
	}
}
