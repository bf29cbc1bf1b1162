package framework

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State makes snapshots from changes of nodes and Pods. It is not safe for concurrent use. Snapshots share memory with
// the state; the state copies a shared part before changing it, at most once for each snapshot.
type State struct {
	current      Snapshot // the next snapshot
	lastSnapshot *Snapshot
	copiedChunks map[int]bool // chunks that were copied since the last snapshot

	zones        [][]int32 // slots by zone, in the order in which zones and nodes were added
	zoneNames    []string
	freeSlots    []int32
	removedNodes map[string]int32 // slots of removed nodes that still have Pods
	placements   map[types.UID]podPlacement
	generation   uint64
	stale        struct{ order, slots, images, nominated bool }

	changes []PodChange // the latest changes; the last one led to current.PodGeneration
}

// podPlacement is a Pod with the slot of the node it was added to.
type podPlacement struct {
	slot int32
	pod  *PodInfo
}

// PodChange is a Pod that was added to a node (By is 1) or removed from it (By is -1).
type PodChange struct {
	Node *NodeInfo
	Pod  *PodInfo
	By   int
}

// keptChanges is the minimum number of latest changes that ChangesBetween can return.
const keptChanges = 4096

// NewState returns a state without nodes.
func NewState(c Cluster) *State {
	return &State{
		current:      Snapshot{Cluster: c, slots: map[string]int32{}, imageStates: newImageStates(), nominated: map[int32][]*PodInfo{}},
		copiedChunks: map[int]bool{}, removedNodes: map[string]int32{}, placements: map[types.UID]podPlacement{},
	}
}

// Snapshot returns a snapshot of the current state.
func (s *State) Snapshot() *Snapshot {
	if s.lastSnapshot != nil {
		return s.lastSnapshot
	}
	if s.stale.order {
		s.current.order = interleaveZones(s.zones)
	}
	s.stale.order, s.stale.slots, s.stale.images, s.stale.nominated = false, false, false, false
	s.current.imageStates.markShared()
	clear(s.copiedChunks)
	s.lastSnapshot = new(s.current)
	return s.lastSnapshot
}

// InvalidateLayout changes Snapshot.Layout, because an object of Cluster has changed that prepared Pods may depend on.
func (s *State) InvalidateLayout() {
	s.lastSnapshot = nil
	s.current.Layout++
}

// SetNode adds or updates a node.
func (s *State) SetNode(node *corev1.Node) {
	slot, known := s.current.slots[node.Name]
	if !known {
		s.InvalidateLayout()
		s.copySlots()
		if ghost, was := s.removedNodes[node.Name]; was {
			slot = ghost
			delete(s.removedNodes, node.Name)
		} else {
			slot = s.newSlot()
		}
		s.current.slots[node.Name] = slot
	}
	n := s.mutableNode(slot)
	old := *n
	n.setNode(node)
	if known && topologyChanged(old.Node, node) {
		s.InvalidateLayout()
	}
	if !known || zoneKey(old.Node) != zoneKey(node) {
		s.placeInZone(slot, node)
	}
	if !maps.Equal(old.Images, n.Images) {
		s.countImages(old.Images, -1)
		s.countImages(n.Images, 1)
	}
}

// topologyChanged reports whether the labels or taints of a node have changed, which plugins that count Pods on other
// nodes depend on.
func topologyChanged(was, is *corev1.Node) bool {
	return !maps.Equal(was.Labels, is.Labels) || !slices.EqualFunc(was.Spec.Taints, is.Spec.Taints, func(a, b corev1.Taint) bool {
		return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
	})
}

// RemoveNode removes a node. Its Pods are kept until they are removed, in case the node is added again.
func (s *State) RemoveNode(name string) {
	slot, known := s.current.slots[name]
	if !known {
		return
	}
	s.InvalidateLayout()
	s.copySlots()
	delete(s.current.slots, name)
	s.leaveZone(slot)
	n := s.mutableNode(slot)
	s.countImages(n.Images, -1)
	n.Node, n.Images = nil, nil
	s.removedNodes[name] = slot
	s.releaseRemovedNode(name, slot)
}

// AddPod adds a Pod to a node, or replaces it if it was added before. The node need not exist yet.
func (s *State) AddPod(p *PodInfo, node string) {
	if h, on := s.placements[p.Pod.UID]; on {
		if s.replace(h, p, node) {
			return
		}
		s.RemovePod(p.Pod.UID)
	}
	slot, found := s.current.slots[node]
	if !found {
		if slot, found = s.removedNodes[node]; !found {
			slot = s.newSlot()
			s.removedNodes[node] = slot
		}
	}
	n := s.mutableNode(slot)
	n.add(p, true)
	s.placements[p.Pod.UID] = podPlacement{slot, p}
	s.markAffinity(slot, n)
	s.recordChange(n, p, 1)
}

// replace replaces a Pod by a newer state that counts the same for plugins. It returns false if that is not the case.
func (s *State) replace(h podPlacement, p *PodInfo, node string) bool {
	n := s.current.nodeAt(h.slot)
	if n.Node == nil || n.Node.Name != node || !countsEqually(h.pod, p) {
		return false
	}
	i := slices.Index(n.Pods, h.pod)
	if i < 0 {
		return false
	}
	generation := n.Generation
	n = s.mutableNode(h.slot)
	n.Generation = generation // results for the node stay valid
	n.Pods = slices.Clone(n.Pods)
	n.Pods[i] = p
	s.placements[p.Pod.UID] = podPlacement{h.slot, p}
	return true
}

// countsEqually reports whether two states of a Pod are equal for all plugins that count Pods.
func countsEqually(a, b *PodInfo) bool {
	down, up := a.Requests.compare(&b.Requests)
	return !down && !up && !a.HasPodAffinity() && !b.HasPodAffinity() && maps.Equal(a.Pod.Labels, b.Pod.Labels) &&
		a.NonZeroCPU == b.NonZeroCPU && a.NonZeroMemory == b.NonZeroMemory && len(a.Ports) == 0 && len(b.Ports) == 0 &&
		(a.Pod.DeletionTimestamp == nil) == (b.Pod.DeletionTimestamp == nil)
}

// RemovePod removes a Pod from its node.
func (s *State) RemovePod(uid types.UID) {
	h, on := s.placements[uid]
	if !on {
		return
	}
	slot := h.slot
	delete(s.placements, uid)
	n := s.mutableNode(slot)
	p := n.remove(uid)
	s.markAffinity(slot, n)
	s.recordChange(n, p, -1)
	for name, ghost := range s.removedNodes {
		if ghost == slot {
			s.releaseRemovedNode(name, slot)
		}
	}
}

// NodeOf returns the name of the node that a Pod was added to, which is empty if the node was removed, and whether the
// Pod was added.
func (s *State) NodeOf(uid types.UID) (string, bool) {
	h, on := s.placements[uid]
	if !on {
		return "", false
	}
	if n := s.current.nodeAt(h.slot); n.Node != nil {
		return n.Node.Name, true
	}
	return "", true
}

// Node returns a node object, or nil.
func (s *State) Node(name string) *corev1.Node {
	n := s.current.Node(name)
	if n == nil {
		return nil
	}
	return n.Node
}

// Pod returns a Pod that was added to a node, or nil.
func (s *State) Pod(uid types.UID) *PodInfo { return s.placements[uid].pod }

// PodCount returns the number of Pods that were added to nodes.
func (s *State) PodCount() int { return len(s.placements) }

// Pods returns all Pods that were added to nodes.
func (s *State) Pods() []*PodInfo {
	out := make([]*PodInfo, 0, len(s.placements))
	for _, h := range s.placements {
		out = append(out, h.pod)
	}
	return out
}

// UpdatedPodInfo returns the PodInfo of a newer state of a Pod. It reuses that of the older state, if there is one.
func (s *State) UpdatedPodInfo(pod *corev1.Pod) *PodInfo {
	if h, on := s.placements[pod.UID]; on {
		return h.pod.updated(pod)
	}
	return NewPodInfo(pod)
}

// ReplaceNode replaces a node by a newer state with no change that affects scheduling. The generation stays the same,
// so results for the node stay valid.
func (s *State) ReplaceNode(node *corev1.Node) {
	slot, known := s.current.slots[node.Name]
	if !known {
		return
	}
	generation := s.current.nodeAt(slot).Generation
	n := s.mutableNode(slot)
	n.Generation, n.Node = generation, node
}

// AffectsScheduling reports whether two states of a node differ in something that plugins read.
func AffectsScheduling(was, is *corev1.Node) bool {
	return ClassifyNodeUpdate(was, is) != 0 || was.Spec.Unschedulable != is.Spec.Unschedulable ||
		!slices.EqualFunc(was.Status.Images, is.Status.Images, func(a, b corev1.ContainerImage) bool {
			return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
		})
}

// Nominate sets the Pods that are nominated for a node.
func (s *State) Nominate(node string, pods []*PodInfo) {
	slot, known := s.current.slots[node]
	if !known {
		return
	}
	s.lastSnapshot = nil
	if !s.stale.nominated {
		s.current.nominated = maps.Clone(s.current.nominated)
		s.stale.nominated = true
	}
	if len(pods) == 0 {
		delete(s.current.nominated, slot)
		return
	}
	s.current.nominated[slot] = pods
}

// ChangesBetween returns the changes between two values of Snapshot.PodGeneration. It returns false if some of them are
// no longer kept. The result may be read without the lock that protects the state.
func (s *State) ChangesBetween(from, to uint64) ([]PodChange, bool) {
	first := s.current.PodGeneration - uint64(len(s.changes)) // the generation before the first kept change
	if from < first {
		return nil, false
	}
	return s.changes[from-first : to-first], true
}

func (s *State) recordChange(n *NodeInfo, p *PodInfo, by int) {
	s.current.PodGeneration++
	if len(s.changes) >= 2*keptChanges {
		s.changes = slices.Clone(s.changes[keptChanges:])
	}
	s.changes = append(s.changes, PodChange{n, p, by})
}

// mutableNode returns a new copy of a node, which the caller may change.
func (s *State) mutableNode(slot int32) *NodeInfo {
	s.lastSnapshot = nil
	at := int(slot / chunkSize)
	if !s.copiedChunks[at] {
		s.current.chunks = slices.Clone(s.current.chunks)
		s.current.chunks[at] = new(*s.current.chunks[at])
		s.copiedChunks[at] = true
	}
	n := new(*s.current.chunks[at][slot%chunkSize])
	s.generation++
	n.Generation = s.generation
	s.current.chunks[at][slot%chunkSize] = n
	return n
}

func (s *State) newSlot() int32 {
	var slot int32
	if last := len(s.freeSlots) - 1; last >= 0 {
		slot = s.freeSlots[last]
		s.freeSlots = s.freeSlots[:last]
	} else {
		slot = int32(len(s.current.slots) + len(s.removedNodes))
	}
	at := int(slot / chunkSize)
	if at == len(s.current.chunks) {
		s.current.chunks = append(slices.Clip(s.current.chunks), new(chunk))
		s.copiedChunks[at] = true
	}
	if !s.copiedChunks[at] {
		s.current.chunks = slices.Clone(s.current.chunks)
		s.current.chunks[at] = new(*s.current.chunks[at])
		s.copiedChunks[at] = true
	}
	s.current.chunks[at][slot%chunkSize] = &NodeInfo{Slot: int(slot)}
	return slot
}

func (s *State) releaseRemovedNode(name string, slot int32) {
	if len(s.current.nodeAt(slot).Pods) > 0 {
		return
	}
	delete(s.removedNodes, name)
	s.freeSlots = append(s.freeSlots, slot)
}

func (s *State) markAffinity(slot int32, n *NodeInfo) {
	s.current.affinitySlots = s.current.affinitySlots.with(slot, len(n.WithAffinity) > 0)
	s.current.antiAffinitySlots = s.current.antiAffinitySlots.with(slot, len(n.WithAntiAffinity) > 0)
}

func (s *State) copySlots() {
	if !s.stale.slots {
		s.current.slots = maps.Clone(s.current.slots)
		s.stale.slots = true
	}
}

func (s *State) countImages(images map[string]int64, by int32) {
	if len(images) == 0 {
		return
	}
	if !s.stale.images {
		s.current.imageStates = new(*s.current.imageStates)
		s.stale.images = true
	}
	for name := range images {
		s.current.imageStates.add(name, by)
	}
	s.lastSnapshot = nil
	s.current.ImageGeneration++
}

func (s *State) placeInZone(slot int32, node *corev1.Node) {
	s.leaveZone(slot)
	z := slices.Index(s.zoneNames, zoneKey(node))
	if z < 0 {
		z = len(s.zoneNames)
		s.zoneNames, s.zones = append(s.zoneNames, zoneKey(node)), append(s.zones, nil)
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

// interleaveZones returns the slots of all zones, alternating between the zones.
func interleaveZones(zones [][]int32) []int32 {
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
