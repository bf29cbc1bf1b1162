package framework

import (
	"iter"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
)

// Cluster returns the objects that plugins read besides Pods and nodes. The objects are shared and read-only.
type Cluster interface {
	Get(gr schema.GroupResource, namespace, name string) (kind.Object, bool)
	List(gr schema.GroupResource, namespace string) iter.Seq[kind.Object]
}

// Snapshot is the cluster at one moment. It never changes.
type Snapshot struct {
	// Cluster may be nil in tests of plugins that do not use it.
	Cluster Cluster
	// Layout is a number that changes with the set of nodes, their labels and taints, and the objects of Cluster that
	// invalidate prepared Pods.
	Layout uint64
	// PodGeneration counts the Pods that were added to nodes or removed from them.
	PodGeneration uint64
	// ImageGeneration counts the changes of images on nodes.
	ImageGeneration uint64

	chunks            []*chunk         // nodes by slot
	order             []int32          // slots of the nodes, alternating between zones
	slots             map[string]int32 // by node name
	imageStates       *imageStates
	affinitySlots     bitmap // slots of nodes with Pods in WithAffinity
	antiAffinitySlots bitmap // slots of nodes with Pods in WithAntiAffinity
	// nominated has the Pods that are nominated for a node, by slot.
	nominated map[int32][]*PodInfo
}

// chunkSize is the number of node pointers that are copied when one node changes.
const chunkSize = 64

type chunk [chunkSize]*NodeInfo

// Len returns the number of nodes.
func (s *Snapshot) Len() int { return len(s.order) }

// At returns a node by its position, from 0 to Len-1.
func (s *Snapshot) At(i int) *NodeInfo { return s.nodeAt(s.order[i]) }

func (s *Snapshot) nodeAt(slot int32) *NodeInfo { return s.chunks[slot/chunkSize][slot%chunkSize] }

// Node returns a node by its name, or nil.
func (s *Snapshot) Node(name string) *NodeInfo {
	slot, found := s.slots[name]
	if !found {
		return nil
	}
	return s.nodeAt(slot)
}

// All yields the nodes in the order of their positions.
func (s *Snapshot) All() iter.Seq[*NodeInfo] {
	return func(yield func(*NodeInfo) bool) {
		for _, slot := range s.order {
			if !yield(s.nodeAt(slot)) {
				return
			}
		}
	}
}

// WithAffinity yields the nodes that have pods in WithAffinity.
func (s *Snapshot) WithAffinity() iter.Seq[*NodeInfo] { return s.nodesIn(s.affinitySlots) }

// WithAntiAffinity yields the nodes that have pods in WithAntiAffinity.
func (s *Snapshot) WithAntiAffinity() iter.Seq[*NodeInfo] { return s.nodesIn(s.antiAffinitySlots) }

func (s *Snapshot) nodesIn(b bitmap) iter.Seq[*NodeInfo] {
	return func(yield func(*NodeInfo) bool) {
		for i, word := range b {
			for ; word != 0; word &= word - 1 {
				n := s.nodeAt(int32(i*64 + bits.TrailingZeros64(word)))
				if n.Node != nil && !yield(n) {
					return
				}
			}
		}
	}
}

// ImageNodes returns the number of nodes that have an image.
func (s *Snapshot) ImageNodes(name string) int {
	if s.imageStates == nil {
		return 0
	}
	return s.imageStates.nodeCount(name)
}

// Nominated returns the Pods that are nominated for a node.
func (s *Snapshot) Nominated(node string) []*PodInfo {
	slot, found := s.slots[node]
	if !found {
		return nil
	}
	return s.nominated[slot]
}

// NominatedNode returns the node that a Pod is nominated for, or nil.
func (s *Snapshot) NominatedNode(uid types.UID) *NodeInfo {
	for slot, pods := range s.nominated {
		if slices.ContainsFunc(pods, func(p *PodInfo) bool { return p.Pod.UID == uid }) {
			if n := s.nodeAt(slot); n.Node != nil {
				return n
			}
		}
	}
	return nil
}

// With returns a snapshot in which Pods are added to a node.
func (s *Snapshot) With(node string, pods ...*PodInfo) *Snapshot {
	return s.derive(node, func(n *NodeInfo) {
		for _, p := range pods {
			n.add(p, false)
		}
	})
}

// Without returns a snapshot in which Pods are removed from a node.
func (s *Snapshot) Without(node string, pods ...types.UID) *Snapshot {
	return s.derive(node, func(n *NodeInfo) {
		for _, uid := range pods {
			n.remove(uid)
		}
	})
}

// derive returns a snapshot with one node changed. The generation of the node becomes 0, so that no results are cached
// for it.
func (s *Snapshot) derive(node string, change func(*NodeInfo)) *Snapshot {
	slot, found := s.slots[node]
	if !found {
		return s
	}
	out := *s
	n := *s.nodeAt(slot)
	n.Generation = 0
	change(&n)
	out.chunks = slices.Clone(s.chunks)
	c := *s.chunks[slot/chunkSize]
	c[slot%chunkSize] = &n
	out.chunks[slot/chunkSize] = &c
	out.affinitySlots = s.affinitySlots.with(slot, len(n.WithAffinity) > 0)
	out.antiAffinitySlots = s.antiAffinitySlots.with(slot, len(n.WithAntiAffinity) > 0)
	return &out
}

// bitmap is an immutable set of slots.
type bitmap []uint64

func (b bitmap) has(slot int32) bool {
	return int(slot/64) < len(b) && b[slot/64]&(1<<(slot%64)) != 0
}

// with returns the set with or without a slot. It does not change b.
func (b bitmap) with(slot int32, in bool) bitmap {
	if b.has(slot) == in {
		return b
	}
	out := make(bitmap, max(len(b), int(slot/64)+1))
	copy(out, b)
	out[slot/64] ^= 1 << (slot % 64)
	return out
}

// CompetingNominees returns the Pods that are nominated for a node and have at least the priority of pod, which
// therefore must count them.
func (s *Snapshot) CompetingNominees(n *NodeInfo, pod *PodInfo) []*PodInfo {
	waiting := s.nominated[int32(n.Slot)]
	if len(waiting) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(waiting), func(w *PodInfo) bool {
		return w.Pod.UID == pod.Pod.UID || w.Priority() < pod.Priority()
	})
}

// SlotCount returns an upper bound for the slots of nodes.
func (s *Snapshot) SlotCount() int { return len(s.chunks) * chunkSize }
