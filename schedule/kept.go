package schedule

// kept are the pods that were worked out lately, by shape, for pods equal to them.
type kept struct {
	profiles map[string]map[string]*compiled // by profile, then shape
	count    int
}

// changes gives the pods that came and went between two numbers, or false if they are forgotten.
type changes func(from, to uint64) ([]change, bool)

// mostKept bounds the memory: each knows something about every node.
const mostKept = 64

func newKept() *kept { return &kept{profiles: map[string]map[string]*compiled{}} }

// decide is Decide, with what is known from equal pods before. changed gives the pods that came and went since then.
func (k *kept) decide(s *Snapshot, t *try, seed Seed, changed changes) Decision {
	profile := t.profile
	shape := t.shape(t.info)
	if shape == "" {
		return Decide(s, t.info, profile, seed)
	}
	c := k.profiles[profile.Name][shape]
	if c != nil && !c.catchUp(s, t.info, changed) {
		delete(k.profiles[profile.Name], shape)
		k.count--
		c = nil
	}
	if c == nil {
		c = compile(s, t.info, profile)
		if c.lasting && c.reject == nil {
			k.keep(profile.Name, shape, c)
		}
	}
	return c.decideAgain(s, t.info, seed)
}

// decideAgain decides, unless an equal pod fitted nowhere and nothing has changed since. When a cluster is full, one change wakes
// every pod that waits; then only the first of many equal ones costs a look at all nodes.
func (c *compiled) decideAgain(s *Snapshot, pod *PodInfo, seed Seed) Decision {
	if c.failedOn == s && pod.Pod.Status.NominatedNodeName == "" {
		d := c.failed
		d.Seed = seed
		return d
	}
	d := c.decide(s, pod, seed, false)
	if c.known && d.Node == "" && d.Err == nil && !c.profile.extended() {
		c.failed, c.failedOn = d, s
	}
	return d
}

func (k *kept) keep(profile, shape string, c *compiled) {
	if k.count >= mostKept {
		k.forgetOne()
	}
	if k.profiles[profile] == nil {
		k.profiles[profile] = map[string]*compiled{}
	}
	k.profiles[profile][shape] = c
	k.count++
	c.known = true
}

// forgetOne makes room. Which one goes is chance: where pods of many templates take turns, to forget all or the oldest would
// mean to know none of them when its turn comes.
func (k *kept) forgetOne() {
	for _, shapes := range k.profiles {
		for shape := range shapes {
			delete(shapes, shape)
			k.count--
			return
		}
	}
}

// catchUp brings closures that count pods up to a snapshot. It returns false when they have to be made anew.
func (c *compiled) catchUp(s *Snapshot, pod *PodInfo, changed changes) bool {
	if c.layout != s.Layout {
		return false
	}
	if c.images != s.pictures {
		c.newImages(s, pod)
	}
	if c.seq == s.seq {
		return true
	}
	seq := c.seq
	c.seq = s.seq
	told := false
	for i := range c.parts {
		told = told || c.parts[i].Reuse == WhileTold
	}
	if !told {
		return true
	}
	list, ok := changed(seq, s.seq)
	if !ok {
		return false
	}
	for _, ch := range list {
		if ch.node.Node == nil { // its pods count when it comes back, which changes the layout
			continue
		}
		for i := range c.parts {
			if p := &c.parts[i]; p.Reuse == WhileTold && !p.Update(ch.node, ch.pod, ch.by) {
				return false
			}
		}
	}
	return true
}

// newImages prepares those anew who count images. While pods start everywhere, images come to nodes all the time, and nobody
// else has to begin from the start because of it.
func (c *compiled) newImages(s *Snapshot, pod *PodInfo) {
	c.images = s.pictures
	for i := range c.parts {
		if p := &c.parts[i]; p.Images {
			p.Prepared = p.Prepare(s, pod)
		}
	}
	for i := range c.cells {
		c.cells[i].scored, c.cells[i].plain = false, 0
	}
}

// shape is that of the pod, worked out once.
func (e *Entry) shape(p *PodInfo) string {
	if e.shaped != p {
		e.shaped, e.shapeText = p, Shape(p.Pod)
	}
	return e.shapeText
}
