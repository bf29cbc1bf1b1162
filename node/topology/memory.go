package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/podstate"
)

// Memory is the memory manager with the static policy: it gives memory and huge pages of certain NUMA nodes to the
// containers of Guaranteed Pods. A node belongs to at most one group of nodes at a time: those from which one container
// has memory together.
type Memory struct {
	machine *Machine
	// reserved is what each node keeps for the system.
	reserved map[int]map[corev1.ResourceName]int64
	state    MemoryState
}

// Block is memory of one kind on some NUMA nodes.
type Block struct {
	Nodes []int               `json:"numaAffinity"`
	Type  corev1.ResourceName `json:"type"`
	Size  int64               `json:"size"`
	// Ends reports that it belongs to an init container that ends before others start: they may have the same memory.
	Ends bool `json:"ends,omitempty"`
}

// MemoryState is the allocations, as they are stored.
type MemoryState struct {
	Policy  string                        `json:"policyName"`
	Entries map[string]map[string][]Block `json:"entries,omitempty"`
}

// NewMemory makes the memory manager.
func NewMemory(m *Machine, reserved map[int]map[corev1.ResourceName]int64) (*Memory, error) {
	if len(reserved) == 0 {
		return nil, errors.New("the static memory policy needs to know how much of each NUMA node is reserved")
	}
	for node := range reserved {
		if _, found := m.Memory[node]; !found {
			return nil, fmt.Errorf("memory is reserved on the NUMA node %d, which is not there", node)
		}
	}
	return &Memory{machine: m, reserved: reserved, state: MemoryState{Policy: "Static", Entries: map[string]map[string][]Block{}}}, nil
}

// Reserve distributes a reserved amount over the NUMA nodes: the first ones are used first.
func (m *Machine) Reserve(bytes int64) map[int]map[corev1.ResourceName]int64 {
	out := map[int]map[corev1.ResourceName]int64{}
	for _, id := range m.Nodes() {
		n := min(bytes, m.Memory[id][corev1.ResourceMemory])
		bytes -= n
		out[id] = map[corev1.ResourceName]int64{corev1.ResourceMemory: n}
	}
	return out
}

// Restore loads stored allocations, after a check that they fit the machine.
func (m *Memory) Restore(s MemoryState) error {
	if s.Policy != m.state.Policy {
		return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", m.state.Policy, s.Policy)
	}
	if s.Entries == nil {
		s.Entries = map[string]map[string][]Block{}
	}
	if !m.fits(s.Entries) {
		return errors.New("what was given to containers is more than the machine has")
	}
	m.state = s
	return nil
}

// State returns what is to be stored.
func (m *Memory) State() MemoryState { return m.state }

// capacity returns what nodes together have for containers.
func (m *Memory) capacity(nodes Mask, name corev1.ResourceName) (sum int64) {
	for _, id := range nodes.IDs() {
		sum += m.machine.Memory[id][name] - m.reserved[id][name]
	}
	return sum
}

// fits reports whether no node is in two groups, and no group gives more than it has.
func (m *Memory) fits(entries map[string]map[string][]Block) bool {
	type share struct {
		nodes Mask
		name  corev1.ResourceName
	}
	used := map[share]int64{}
	group := map[int]Mask{}
	for _, containers := range entries {
		stay, ends := map[share]int64{}, map[share]int64{}
		for _, blocks := range containers {
			for _, b := range blocks {
				nodes := MaskOf(b.Nodes...)
				for _, id := range b.Nodes {
					if g, taken := group[id]; taken && g != nodes {
						return false
					}
					group[id] = nodes
				}
				if b.Ends {
					ends[share{nodes, b.Type}] = max(ends[share{nodes, b.Type}], b.Size)
				} else {
					stay[share{nodes, b.Type}] += b.Size
				}
			}
		}
		for s, n := range ends {
			stay[s] = max(stay[s], n)
		}
		for s, n := range stay {
			used[s] += n
		}
	}
	for s, n := range used {
		if n > m.capacity(s.nodes, s.name) {
			return false
		}
	}
	return true
}

// Wants returns how much memory of each kind a container is to have; nothing for Pods that are not Guaranteed.
func (m *Memory) Wants(p *corev1.Pod, c *corev1.Container) map[corev1.ResourceName]int64 {
	if podspec.QOSClass(&p.Spec) != corev1.PodQOSGuaranteed {
		return nil
	}
	out := map[corev1.ResourceName]int64{}
	for name, q := range c.Resources.Requests {
		if name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			out[name] = quantity.Value(&q)
		}
	}
	return out
}

// Hints returns the NUMA nodes from which the memory of a container could come; nil if it wants none.
func (m *Memory) Hints(p *corev1.Pod, c *corev1.Container) []Hint {
	wants := m.Wants(p, c)
	if len(wants) == 0 {
		return nil
	}
	if blocks := m.state.Entries[string(p.UID)][c.Name]; len(blocks) > 0 {
		return []Hint{{Nodes: MaskOf(blocks[0].Nodes...), Preferred: true}}
	}
	least := 1 << 16
	out := []Hint{}
	for _, nodes := range Masks(m.machine.Nodes()) {
		enough := true
		for name, n := range wants {
			enough = enough && m.capacity(nodes, name) >= n
		}
		if !enough {
			continue
		}
		least = min(least, nodes.Len())
		if m.fits(m.with(p, c, nodes, wants)) {
			out = append(out, Hint{Nodes: nodes})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least
	}
	return out
}

// PodHints returns the NUMA nodes from which the memory of all containers of a Pod could come together.
func (m *Memory) PodHints(p *corev1.Pod) []Hint {
	all := corev1.ResourceList{}
	for i := range p.Spec.Containers {
		for name, q := range p.Spec.Containers[i].Resources.Requests {
			sum := all[name]
			sum.Add(q)
			all[name] = sum
		}
	}
	for i := range p.Spec.InitContainers {
		for name, q := range p.Spec.InitContainers[i].Resources.Requests {
			if sum := all[name]; q.Cmp(sum) > 0 {
				all[name] = q
			}
		}
	}
	for _, blocks := range m.state.Entries[string(p.UID)] {
		if len(blocks) > 0 {
			return []Hint{{Nodes: MaskOf(blocks[0].Nodes...), Preferred: true}}
		}
	}
	return m.Hints(p, &corev1.Container{Resources: corev1.ResourceRequirements{Requests: all}})
}

// with returns the allocations as they would be if a container had its memory from some nodes.
func (m *Memory) with(p *corev1.Pod, c *corev1.Container, nodes Mask, wants map[corev1.ResourceName]int64) map[string]map[string][]Block {
	ends := slices.ContainsFunc(p.Spec.InitContainers, func(x corev1.Container) bool {
		return x.Name == c.Name && !podstate.IsSidecar(&x)
	})
	var blocks []Block
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		blocks = append(blocks, Block{Nodes: nodes.IDs(), Type: name, Size: wants[name], Ends: ends})
	}
	out := maps.Clone(m.state.Entries)
	own := maps.Clone(out[string(p.UID)])
	if own == nil {
		own = map[string][]Block{}
	}
	own[c.Name] = blocks
	out[string(p.UID)] = own
	return out
}

// Allocate allocates the memory of a container: from the nodes of the hint if they have it, otherwise from the smallest
// set that includes them and has it.
func (m *Memory) Allocate(p *corev1.Pod, c *corev1.Container, near Hint) error {
	wants := m.Wants(p, c)
	if len(wants) == 0 || len(m.state.Entries[string(p.UID)][c.Name]) > 0 {
		return nil
	}
	for _, h := range m.Hints(p, c) {
		if h.Nodes&near.Nodes == near.Nodes {
			m.state.Entries = m.with(p, c, h.Nodes, wants)
			return nil
		}
	}
	return fmt.Errorf("[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
}

// Of returns the NUMA nodes of a container's memory; empty for all.
func (m *Memory) Of(uid types.UID, container string) string {
	blocks := m.state.Entries[string(uid)][container]
	if len(blocks) == 0 {
		return ""
	}
	return MaskOf(blocks[0].Nodes...).String()
}

// Blocks returns the memory of a container.
func (m *Memory) Blocks(uid types.UID, container string) []Block {
	return m.state.Entries[string(uid)][container]
}

// Release releases the memory of a Pod.
func (m *Memory) Release(uid types.UID) bool {
	_, had := m.state.Entries[string(uid)]
	delete(m.state.Entries, string(uid))
	return had
}

// Has reports whether a Pod has memory of certain nodes.
func (m *Memory) Has(uid types.UID) bool { return len(m.state.Entries[string(uid)]) > 0 }

// Pods returns the Pods that have memory of certain nodes.
func (m *Memory) Pods() (out []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(m.state.Entries)) {
		out = append(out, types.UID(uid))
	}
	return out
}
