package nodelife

import (
	"iter"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// tower remembers when it saw a sign of life of each node, by its own clock: those of the nodes may be wrong. After a restart it
// has seen nothing, and gives everybody the whole grace again.
type tower struct {
	Config

	mu    sync.Mutex // guards what follows
	nodes map[string]*sign
	zones map[string]*bucket
	down  bool // every zone was down when it was last asked
}

// sign is the last sign of life of a node.
type sign struct {
	node      *corev1.Node
	renewed   time.Time // what its Lease said
	heartbeat time.Time // what its Ready condition said
	at        time.Time // when that was seen
}

func newTower(c Config) *tower {
	return &tower{Config: c, nodes: map[string]*sign{}, zones: map[string]*bucket{}}
}

// greet says that a node is new, and remembers it.
func (t *tower) greet(node *corev1.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[node.Name]
	if s == nil || s.node == nil || s.node.UID != node.UID {
		t.nodes[node.Name] = &sign{node: node, at: time.Now()}
		return true
	}
	s.node = node
	return false
}

// forget drops a node and returns what it was.
func (t *tower) forget(name string) *corev1.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[name]
	delete(t.nodes, name)
	if s == nil {
		return nil
	}
	return s.node
}

// hear notes that a Lease was renewed. It wakes nobody.
func (t *tower) hear(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	if lease, ok := o.(*coordinationv1.Lease); ok && o.GetNamespace() == corev1.NamespaceNodeLease {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s := t.nodes[o.GetName()]; s != nil {
			s.saw(lease, time.Now())
		}
	}
	return func(func(control.Key) bool) {}
}

func (s *sign) saw(lease *coordinationv1.Lease, now time.Time) {
	if lease == nil || lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(s.renewed) {
		return
	}
	s.renewed, s.at = lease.Spec.RenewTime.Time, now
}

// left is how long a node may still be silent.
func (t *tower) left(node *corev1.Node, lease *coordinationv1.Lease, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[node.Name]
	s.saw(lease, now)
	grace := t.Grace
	if c := condition(&node.Status, corev1.NodeReady); c == nil {
		grace = t.StartupGrace
	} else if !c.LastHeartbeatTime.Time.Equal(s.heartbeat) {
		s.heartbeat, s.at = c.LastHeartbeatTime.Time, now
	}
	return s.at.Add(grace).Sub(now)
}

// The rates at which nodes are given up: one in ten seconds, and in a zone where most are down, one in a hundred seconds if the
// zone is large and none if it is small.
const (
	normalEvery = 10 * time.Second
	slowEvery   = 100 * time.Second
	largeZone   = 50
	mostDown    = 0.55
)

// bucket lets one node at a time be given up.
type bucket struct {
	next time.Time
}

// pace is the time between two nodes of a zone; zero for never. down says that all zones are.
func (t *tower) pace(c *control.Cluster, node *corev1.Node) (every time.Duration, down bool) {
	ready, all := map[string]int{}, map[string]int{}
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		z := zone(n)
		all[z]++
		if readiness(n) == corev1.ConditionTrue {
			ready[z]++
		}
	}
	down = true
	for z := range all {
		down = down && ready[z] == 0
	}
	z := zone(node)
	bad := all[z] - ready[z]
	switch {
	case down:
		return 0, true
	case ready[z] > 0 && bad > 2 && float64(bad)/float64(all[z]) >= mostDown:
		if all[z] > largeZone {
			return slowEvery, false
		}
		return 0, false
	}
	return normalEvery, false
}

func zone(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + ":\x00:" + n.Labels[corev1.LabelTopologyZone]
}

// pass says whether a node may be given up now, and otherwise when to ask again.
func (t *tower) pass(node *corev1.Node, every time.Duration, down bool, now time.Time) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down && !down { // somebody is back: it may have been us who saw nothing
		for _, s := range t.nodes {
			s.at = now
		}
	}
	t.down = down
	if every == 0 {
		return false, 0
	}
	b := t.zones[zone(node)]
	if b == nil {
		b = &bucket{}
		t.zones[zone(node)] = b
	}
	if now.Before(b.next) {
		return false, b.next.Sub(now)
	}
	b.next = now.Add(every)
	return true, 0
}
