package nodelifecycle

import (
	"iter"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// monitor remembers when it saw the last heartbeat of each node, by its own clock, because those of the nodes may be wrong. After
// a restart every node has the whole grace period again.
type monitor struct {
	Config

	mu    sync.Mutex // guards what follows
	nodes map[string]*heartbeat
	zones map[string]*zoneState
	down  bool // no node was ready at the last call of mayEvict
}

// heartbeat is the last heartbeat of a node: a renewal of its Lease, or an update of its status.
type heartbeat struct {
	node      *corev1.Node
	renewed   time.Time // the renew time of its Lease
	heartbeat time.Time // the heartbeat time of its condition Ready
	at        time.Time // when the last of them was seen
}

func newMonitor(c Config) *monitor {
	return &monitor{Config: c, nodes: map[string]*heartbeat{}, zones: map[string]*zoneState{}}
}

// isNew remembers a node, and reports whether it is new.
func (t *monitor) isNew(node *corev1.Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[node.Name]
	if s == nil || s.node == nil || s.node.UID != node.UID {
		t.nodes[node.Name] = &heartbeat{node: node, at: time.Now()}
		return true
	}
	s.node = node
	return false
}

// forget removes a node, and returns its last known state.
func (t *monitor) forget(name string) *corev1.Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[name]
	delete(t.nodes, name)
	if s == nil {
		return nil
	}
	return s.node
}

// observeLease records that a Lease was renewed. It wakes no key.
func (t *monitor) observeLease(_ *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	if lease, ok := o.(*coordinationv1.Lease); ok && o.GetNamespace() == corev1.NamespaceNodeLease {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s := t.nodes[o.GetName()]; s != nil {
			s.observeLease(lease, time.Now())
		}
	}
	return func(func(control.Key) bool) {}
}

func (s *heartbeat) observeLease(lease *coordinationv1.Lease, now time.Time) {
	if lease == nil || lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(s.renewed) {
		return
	}
	s.renewed, s.at = lease.Spec.RenewTime.Time, now
}

// graceLeft returns the time until the grace period of a node ends.
func (t *monitor) graceLeft(node *corev1.Node, lease *coordinationv1.Lease, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.nodes[node.Name]
	s.observeLease(lease, now)
	grace := t.Grace
	if c := condition(&node.Status, corev1.NodeReady); c == nil {
		grace = t.StartupGrace
	} else if !c.LastHeartbeatTime.Time.Equal(s.heartbeat) {
		s.heartbeat, s.at = c.LastHeartbeatTime.Time, now
	}
	return s.at.Add(grace).Sub(now)
}

// Eviction starts from one node of a zone in ten seconds. In a zone where most nodes are down it starts from one in a hundred
// seconds if the zone is large, and from none if it is small.
const (
	normalInterval    = 10 * time.Second
	slowInterval      = 100 * time.Second
	largeZone         = 50
	unhealthyFraction = 0.55
)

// zoneState limits the rate of evictions in a zone.
type zoneState struct {
	next time.Time
}

// evictionInterval returns the interval between evictions from nodes of a zone; zero for none. down is true if no node is ready.
func (t *monitor) evictionInterval(c *control.Cluster, node *corev1.Node) (interval time.Duration, down bool) {
	ready, all := map[string]int{}, map[string]int{}
	for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
		z := zoneOf(n)
		all[z]++
		if readiness(n) == corev1.ConditionTrue {
			ready[z]++
		}
	}
	down = true
	for z := range all {
		down = down && ready[z] == 0
	}
	z := zoneOf(node)
	bad := all[z] - ready[z]
	switch {
	case down:
		return 0, true
	case ready[z] > 0 && bad > 2 && float64(bad)/float64(all[z]) >= unhealthyFraction:
		if all[z] > largeZone {
			return slowInterval, false
		}
		return 0, false
	}
	return normalInterval, false
}

func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + ":\x00:" + n.Labels[corev1.LabelTopologyZone]
}

// mayEvict reports whether eviction from a node may start now, and otherwise the time until it may.
func (t *monitor) mayEvict(node *corev1.Node, interval time.Duration, down bool, now time.Time) (ok bool, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down && !down { // a node is ready again: the server itself may have been cut off, so all nodes get a new grace period
		for _, s := range t.nodes {
			s.at = now
		}
	}
	t.down = down
	if interval == 0 {
		return false, 0
	}
	b := t.zones[zoneOf(node)]
	if b == nil {
		b = &zoneState{}
		t.zones[zoneOf(node)] = b
	}
	if now.Before(b.next) {
		return false, b.next.Sub(now)
	}
	b.next = now.Add(interval)
	return true, 0
}
