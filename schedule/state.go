package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State makes snapshots from changes. One goroutine at a time may use it. What a snapshot shares with the state is copied
// before it is changed, once for each snapshot that was taken.
type State struct {
	cur   Snapshot // what the next snapshot will be
	taken *Snapshot
	own   map[int]bool // chunks made since the last snapshot was taken

	zones     [][]int32 // slots by zone, in the order in which zones and nodes appeared
	zoneNames []string
	free      []int32
	ghosts    map[string]int32 // nodes that are gone, with pods still on them
	homes     map[types.UID]home
	gen       uint64
	stale     struct{ order, slots, images, nominated bool }

	changes []change // the latest, the last of which has the number cur.seq
}

// home is where a pod is counted, and as what.
type home struct {
	slot int32
	pod  *PodInfo
}

// change is a pod that came or went.
type change struct {
	node *NodeInfo
	pod  *PodInfo
	by   int
}

// keptChanges is how many are kept for those who keep up with them.
const keptChanges = 4096

// NewState returns an empty one.
func NewState(c Cluster) *State {
	return &State{
		cur: Snapshot{Cluster: c, slots: map[string]int32{}, images: newCounts(), nominated: map[int32][]*PodInfo{}},
		own: map[int]bool{}, ghosts: map[string]int32{}, homes: map[types.UID]home{},
	}
}

// Snapshot is the cluster as it is now.
func (s *State) Snapshot() *Snapshot {
	if s.taken != nil {
		return s.taken
	}
	if s.stale.order {
		s.cur.order = turns(s.zones)
	}
	s.stale.order, s.stale.slots, s.stale.images, s.stale.nominated = false, false, false, false
	s.cur.images.publish()
	clear(s.own)
	s.taken = new(s.cur)
	return s.taken
}

// Touch says that an object of Cluster has changed.
func (s *State) Touch() {
	s.taken = nil
	s.cur.Layout++
}

// SetNode adds or updates a node.
func (s *State) SetNode(node *corev1.Node) {
	slot, known := s.cur.slots[node.Name]
	if !known {
		s.Touch()
		s.ownSlots()
		if ghost, was := s.ghosts[node.Name]; was {
			slot = ghost
			delete(s.ghosts, node.Name)
		} else {
			slot = s.newSlot()
		}
		s.cur.slots[node.Name] = slot
	}
	n := s.change(slot)
	old := *n
	n.setNode(node)
	if known && moved(old.Node, node) {
		s.Touch()
	}
	if !known || zone(old.Node) != zone(node) {
		s.placeInZone(slot, node)
	}
	if !maps.Equal(old.Images, n.Images) {
		s.countImages(old.Images, -1)
		s.countImages(n.Images, 1)
	}
}

// moved says that a node changed what those see of it who count pods elsewhere.
func moved(was, is *corev1.Node) bool {
	return !maps.Equal(was.Labels, is.Labels) || !slices.EqualFunc(was.Spec.Taints, is.Spec.Taints, func(a, b corev1.Taint) bool {
		return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
	})
}

// RemoveNode forgets a node. Its pods are remembered until they go, in case it comes back.
func (s *State) RemoveNode(name string) {
	slot, known := s.cur.slots[name]
	if !known {
		return
	}
	s.Touch()
	s.ownSlots()
	delete(s.cur.slots, name)
	s.leaveZone(slot)
	n := s.change(slot)
	s.countImages(n.Images, -1)
	n.Node, n.Images = nil, nil
	s.ghosts[name] = slot
	s.freeGhost(name, slot)
}

// AddPod counts a pod on a node, or counts it anew if it is there already. The node need not exist yet.
func (s *State) AddPod(p *PodInfo, node string) {
	if h, on := s.homes[p.Pod.UID]; on {
		if s.replace(h, p, node) {
			return
		}
		s.RemovePod(p.Pod.UID)
	}
	slot, found := s.cur.slots[node]
	if !found {
		if slot, found = s.ghosts[node]; !found {
			slot = s.newSlot()
			s.ghosts[node] = slot
		}
	}
	n := s.change(slot)
	n.add(p, true)
	s.homes[p.Pod.UID] = home{slot, p}
	s.mark(slot, n)
	s.record(n, p, 1)
}

// replace swaps a pod for a newer state of itself that counts for the same.
func (s *State) replace(h home, p *PodInfo, node string) bool {
	n := s.cur.at(h.slot)
	if n.Node == nil || n.Node.Name != node || !alike(h.pod, p) {
		return false
	}
	i := slices.Index(n.Pods, h.pod)
	if i < 0 {
		return false
	}
	generation := n.Generation
	n = s.change(h.slot)
	n.Generation = generation // nothing that was found out about the node is less true
	n.Pods = slices.Clone(n.Pods)
	n.Pods[i] = p
	s.homes[p.Pod.UID] = home{h.slot, p}
	return true
}

// alike says that nobody who counts pods sees a difference.
func alike(a, b *PodInfo) bool {
	down, up := a.Requests.compare(&b.Requests)
	return !down && !up && !a.affine() && !b.affine() && maps.Equal(a.Pod.Labels, b.Pod.Labels) &&
		a.NonZeroCPU == b.NonZeroCPU && a.NonZeroMemory == b.NonZeroMemory && len(a.Ports) == 0 && len(b.Ports) == 0 &&
		(a.Pod.DeletionTimestamp == nil) == (b.Pod.DeletionTimestamp == nil)
}

// RemovePod takes a pod off its node.
func (s *State) RemovePod(uid types.UID) {
	h, on := s.homes[uid]
	if !on {
		return
	}
	slot := h.slot
	delete(s.homes, uid)
	n := s.change(slot)
	p := n.remove(uid)
	s.mark(slot, n)
	s.record(n, p, -1)
	for name, ghost := range s.ghosts {
		if ghost == slot {
			s.freeGhost(name, slot)
		}
	}
}

// Home is the node a pod is counted on.
func (s *State) Home(uid types.UID) (string, bool) {
	h, on := s.homes[uid]
	if !on {
		return "", false
	}
	if n := s.cur.at(h.slot); n.Node != nil {
		return n.Node.Name, true
	}
	return "", true
}

// node is a node as it is known, or nil.
func (s *State) node(name string) *corev1.Node {
	n := s.cur.Node(name)
	if n == nil {
		return nil
	}
	return n.Node
}

// pods are all that are counted.
func (s *State) pods() []*PodInfo {
	out := make([]*PodInfo, 0, len(s.homes))
	for _, h := range s.homes {
		out = append(out, h.pod)
	}
	return out
}

// Renewed is a newer state of a pod, worked out with the help of the older if that is counted.
func (s *State) Renewed(pod *corev1.Pod) *PodInfo {
	if h, on := s.homes[pod.UID]; on {
		return h.pod.renewed(pod)
	}
	return NewPodInfo(pod)
}

// refreshNode takes over a newer state of a node in which nothing that matters has changed. What is known about it stays
// true, so its generation stays the same.
func (s *State) refreshNode(node *corev1.Node) {
	slot, known := s.cur.slots[node.Name]
	if !known {
		return
	}
	generation := s.cur.at(slot).Generation
	n := s.change(slot)
	n.Generation, n.Node = generation, node
}

// matters says that plugins can see a difference between two states of a node.
func matters(was, is *corev1.Node) bool {
	return nodeChange(was, is) != 0 || was.Spec.Unschedulable != is.Spec.Unschedulable ||
		!slices.EqualFunc(was.Status.Images, is.Status.Images, func(a, b corev1.ContainerImage) bool {
			return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
		})
}

// Nominate says which pods wait for room on a node.
func (s *State) Nominate(node string, pods []*PodInfo) {
	slot, known := s.cur.slots[node]
	if !known {
		return
	}
	s.taken = nil
	if !s.stale.nominated {
		s.cur.nominated = maps.Clone(s.cur.nominated)
		s.stale.nominated = true
	}
	if len(pods) == 0 {
		delete(s.cur.nominated, slot)
		return
	}
	s.cur.nominated[slot] = pods
}

// between are the changes after the one with the number from, up to that with the number to; it returns false when some are
// forgotten. They may be read without the lock under which the state is used.
func (s *State) between(from, to uint64) ([]change, bool) {
	first := s.cur.seq - uint64(len(s.changes)) // the number before the first that is kept
	if from < first {
		return nil, false
	}
	return s.changes[from-first : to-first], true
}

func (s *State) record(n *NodeInfo, p *PodInfo, by int) {
	s.cur.seq++
	if len(s.changes) >= 2*keptChanges {
		s.changes = slices.Clone(s.changes[keptChanges:])
	}
	s.changes = append(s.changes, change{n, p, by})
}

// change returns a copy of a node that may be changed.
func (s *State) change(slot int32) *NodeInfo {
	s.taken = nil
	at := int(slot / chunkSize)
	if !s.own[at] {
		s.cur.chunks = slices.Clone(s.cur.chunks)
		s.cur.chunks[at] = new(*s.cur.chunks[at])
		s.own[at] = true
	}
	n := new(*s.cur.chunks[at][slot%chunkSize])
	s.gen++
	n.Generation = s.gen
	s.cur.chunks[at][slot%chunkSize] = n
	return n
}

func (s *State) newSlot() int32 {
	var slot int32
	if last := len(s.free) - 1; last >= 0 {
		slot = s.free[last]
		s.free = s.free[:last]
	} else {
		slot = int32(len(s.cur.slots) + len(s.ghosts))
	}
	at := int(slot / chunkSize)
	if at == len(s.cur.chunks) {
		s.cur.chunks = append(slices.Clip(s.cur.chunks), new(chunk))
		s.own[at] = true
	}
	if !s.own[at] {
		s.cur.chunks = slices.Clone(s.cur.chunks)
		s.cur.chunks[at] = new(*s.cur.chunks[at])
		s.own[at] = true
	}
	s.cur.chunks[at][slot%chunkSize] = &NodeInfo{Slot: int(slot)}
	return slot
}

func (s *State) freeGhost(name string, slot int32) {
	if len(s.cur.at(slot).Pods) > 0 {
		return
	}
	delete(s.ghosts, name)
	s.free = append(s.free, slot)
}

func (s *State) mark(slot int32, n *NodeInfo) {
	s.cur.affine = s.cur.affine.with(slot, len(n.WithAffinity) > 0)
	s.cur.anti = s.cur.anti.with(slot, len(n.WithAntiAffinity) > 0)
}

func (s *State) ownSlots() {
	if !s.stale.slots {
		s.cur.slots = maps.Clone(s.cur.slots)
		s.stale.slots = true
	}
}

func (s *State) countImages(images map[string]int64, by int32) {
	if len(images) == 0 {
		return
	}
	if !s.stale.images {
		s.cur.images = new(*s.cur.images)
		s.stale.images = true
	}
	for name := range images {
		s.cur.images.add(name, by)
	}
	s.taken = nil
	s.cur.pictures++
}

func (s *State) placeInZone(slot int32, node *corev1.Node) {
	s.leaveZone(slot)
	z := slices.Index(s.zoneNames, zone(node))
	if z < 0 {
		z = len(s.zoneNames)
		s.zoneNames, s.zones = append(s.zoneNames, zone(node)), append(s.zones, nil)
	}
	s.zones[z] = append(s.zones[z], slot)
	s.stale.order = true
}

func (s *State) leaveZone(slot int32) {
	for z := range s.zones {
		i := slices.Index(s.zones[z], slot)
		if i < 0 {
			continue
		}
		s.zones[z] = slices.Delete(s.zones[z], i, i+1)
		if len(s.zones[z]) == 0 {
			s.zones, s.zoneNames = slices.Delete(s.zones, z, z+1), slices.Delete(s.zoneNames, z, z+1)
		}
		s.stale.order = true
		return
	}
}

// turns takes one of each zone, again and again.
func turns(zones [][]int32) []int32 {
	var out []int32
	for i := 0; ; i++ {
		more := false
		for _, z := range zones {
			if i < len(z) {
				out = append(out, z[i])
				more = true
			}
		}
		if !more {
			return out
		}
	}
}
