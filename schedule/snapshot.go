package schedule

import (
	"iter"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
)

// Cluster gives the objects that plugins look up besides pods and nodes. They are shared and read-only.
type Cluster interface {
	Get(gr schema.GroupResource, namespace, name string) (kind.Object, bool)
	List(gr schema.GroupResource, namespace string) iter.Seq[kind.Object]
}

// Snapshot is the cluster at one moment. It never changes.
type Snapshot struct {
	// Cluster may be nil in tests of plugins that read nothing from it.
	Cluster Cluster
	// Layout changes with the set of nodes, their labels and taints, and the objects of Cluster.
	Layout uint64

	chunks []*chunk         // nodes by slot
	order  []int32          // slots of the nodes that exist, taking turns between zones
	slots  map[string]int32 // by name
	images *counts          // how many nodes have an image
	affine bitmap           // slots with pods in WithAffinity
	anti   bitmap           // slots with pods in WithAntiAffinity
	// nominated are pods that wait for room on a node, by slot.
	nominated map[int32][]*PodInfo
	seq       uint64 // how many pods have come and gone before
	pictures  uint64 // how often images have
}

// chunkSize is what is copied when one node changes.
const chunkSize = 64

type chunk [chunkSize]*NodeInfo

// Len is the number of nodes.
func (s *Snapshot) Len() int { return len(s.order) }

// At is a node by its place in the order, from 0 to Len.
func (s *Snapshot) At(i int) *NodeInfo { return s.at(s.order[i]) }

func (s *Snapshot) at(slot int32) *NodeInfo { return s.chunks[slot/chunkSize][slot%chunkSize] }

// Node is a node by its name, or nil.
func (s *Snapshot) Node(name string) *NodeInfo {
	slot, found := s.slots[name]
	if !found {
		return nil
	}
	return s.at(slot)
}

// All yields the nodes in their order.
func (s *Snapshot) All() iter.Seq[*NodeInfo] {
	return func(yield func(*NodeInfo) bool) {
		for _, slot := range s.order {
			if !yield(s.at(slot)) {
				return
			}
		}
	}
}

// WithAffinity yields the nodes that have pods in WithAffinity.
func (s *Snapshot) WithAffinity() iter.Seq[*NodeInfo] { return s.marked(s.affine) }

// WithAntiAffinity yields the nodes that have pods in WithAntiAffinity.
func (s *Snapshot) WithAntiAffinity() iter.Seq[*NodeInfo] { return s.marked(s.anti) }

func (s *Snapshot) marked(b bitmap) iter.Seq[*NodeInfo] {
	return func(yield func(*NodeInfo) bool) {
		for i, word := range b {
			for ; word != 0; word &= word - 1 {
				n := s.at(int32(i*64 + bits.TrailingZeros64(word)))
				if n.Node != nil && !yield(n) {
					return
				}
			}
		}
	}
}

// ImageNodes is the number of nodes that have an image.
func (s *Snapshot) ImageNodes(name string) int {
	if s.images == nil {
		return 0
	}
	return s.images.of(name)
}

// Nominated are the pods that wait for room on a node.
func (s *Snapshot) Nominated(node string) []*PodInfo {
	slot, found := s.slots[node]
	if !found {
		return nil
	}
	return s.nominated[slot]
}

// With is the snapshot in which pods have come to a node.
func (s *Snapshot) With(node string, pods ...*PodInfo) *Snapshot {
	return s.derive(node, func(n *NodeInfo) {
		for _, p := range pods {
			n.add(p, false)
		}
	})
}

// Without is the snapshot in which pods have left a node.
func (s *Snapshot) Without(node string, pods ...types.UID) *Snapshot {
	return s.derive(node, func(n *NodeInfo) {
		for _, uid := range pods {
			n.remove(uid)
		}
	})
}

// derive is the snapshot with one node changed. The generation is marked as being of no state, so that nothing is kept for
// it.
func (s *Snapshot) derive(node string, change func(*NodeInfo)) *Snapshot {
	slot, found := s.slots[node]
	if !found {
		return s
	}
	out := *s
	n := *s.at(slot)
	n.Generation = 0
	change(&n)
	out.chunks = slices.Clone(s.chunks)
	c := *s.chunks[slot/chunkSize]
	c[slot%chunkSize] = &n
	out.chunks[slot/chunkSize] = &c
	out.affine = s.affine.with(slot, len(n.WithAffinity) > 0)
	out.anti = s.anti.with(slot, len(n.WithAntiAffinity) > 0)
	return &out
}

// bitmap is a set of slots.
type bitmap []uint64

func (b bitmap) has(slot int32) bool {
	return int(slot/64) < len(b) && b[slot/64]&(1<<(slot%64)) != 0
}

// with is the set with a slot in it or not; b itself stays as it is.
func (b bitmap) with(slot int32, in bool) bitmap {
	if b.has(slot) == in {
		return b
	}
	out := make(bitmap, max(len(b), int(slot/64)+1))
	copy(out, b)
	out[slot/64] ^= 1 << (slot % 64)
	return out
}
