package topology

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/checkpoint"
	"proa.dev/node/pod"
)

// Provider gives something that is near some NUMA nodes, such as devices.
type Provider interface {
	// Hints are where each resource of a container could come from: nil if it does not matter, empty if it cannot be given.
	Hints(p *corev1.Pod, c *corev1.Container) map[string][]Hint
	// Allocate gives a container what it asks for, near some nodes.
	Allocate(ctx context.Context, p *corev1.Pod, c *corev1.Container, near Hint) error
}

// Config is what a Manager works with. CPUs and Memory are nil for the policy none.
type Config struct {
	Policy Policy
	// WholePod aligns all containers of a Pod together.
	WholePod bool
	Machine  *Machine
	CPUs     *CPUs
	Memory   *Memory
	// Others give devices and the like.
	Others []Provider
	// Dir is where the state is kept.
	Dir string
	// Changed is called when the processors that all share are others: containers that run must be told.
	Changed func()
}

// Manager admits Pods with what they are given.
type Manager struct {
	Config
	// turn lets one Pod be admitted at a time: others, who may be slow, are asked in between.
	turn sync.Mutex

	mu     sync.Mutex // guards CPUs, Memory and shared
	shared string
}

// New makes a manager with what was stored. A state that does not fit is an error: whoever changed the machine must say so by
// removing the file, as containers run by it.
func New(c Config) (*Manager, error) {
	if len(c.Machine.Nodes()) > maxNodes && (c.Memory != nil || c.Policy != None && c.Policy != "") {
		return nil, fmt.Errorf("unsupported on machines with more than %v NUMA Nodes", maxNodes)
	}
	m := &Manager{Config: c}
	if c.CPUs != nil {
		var s CPUState
		if err := load(m.file("cpu_manager_state"), &s, func() error { return c.CPUs.Restore(s) }); err != nil {
			return nil, err
		}
		m.shared = c.CPUs.State().Shared
	}
	if c.Memory != nil {
		var s MemoryState
		if err := load(m.file("memory_manager_state"), &s, func() error { return c.Memory.Restore(s) }); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Manager) file(name string) string { return filepath.Join(m.Dir, name) }

func load(file string, into any, use func() error) error {
	found, err := checkpoint.Read(file, into)
	if !found {
		return nil
	}
	if err == nil {
		err = use()
	}
	if err != nil {
		return fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete the checkpoint file %q before restarting", err, file)
	}
	return nil
}

// keep stores what has changed, and tells of it. The caller holds the lock.
func (m *Manager) keep() error {
	var errs []error
	if m.CPUs != nil {
		errs = append(errs, checkpoint.Write(m.file("cpu_manager_state"), m.CPUs.State()))
		if now := m.CPUs.State().Shared; now != m.shared {
			m.shared = now
			if m.Changed != nil {
				m.Changed()
			}
		}
	}
	if m.Memory != nil {
		errs = append(errs, checkpoint.Write(m.file("memory_manager_state"), m.Memory.State()))
	}
	return errors.Join(errs...)
}

// Admit gives the containers of a Pod what they ask for, or says why the Pod cannot run here. What was given before stays.
func (m *Manager) Admit(ctx context.Context, p *corev1.Pod) *pod.Verdict {
	m.turn.Lock()
	defer m.turn.Unlock()
	v := m.admit(ctx, p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if v != nil {
		m.release(p.UID)
		return v
	}
	if err := m.keep(); err != nil {
		m.release(p.UID)
		return unexpected(err)
	}
	return nil
}

func (m *Manager) admit(ctx context.Context, p *corev1.Pod) *pod.Verdict {
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	var whole Hint
	if m.WholePod {
		best, ok := merge(m.Policy, m.Machine.Nodes(), m.together(p, all))
		if !ok {
			return misaligned()
		}
		whole = best
	}
	for i := range all {
		c := &all[i]
		best := whole
		if !m.WholePod {
			var ok bool
			if best, ok = merge(m.Policy, m.Machine.Nodes(), m.wishes(p, c)); !ok {
				return misaligned()
			}
		}
		if v := m.give(ctx, p, c, best); v != nil {
			return v
		}
	}
	return nil
}

// own does something with processors and memory.
func (m *Manager) own(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// wishes are the hints of every resource of a container.
func (m *Manager) wishes(p *corev1.Pod, c *corev1.Container) (out [][]Hint) {
	if m.Policy == None || m.Policy == "" {
		return nil
	}
	m.own(func() {
		if m.CPUs != nil {
			out = append(out, m.CPUs.Hints(p, c))
		}
		if m.Memory != nil {
			out = append(out, m.Memory.Hints(p, c))
		}
	})
	for _, o := range m.Others {
		for _, hints := range o.Hints(p, c) {
			out = append(out, hints)
		}
	}
	return out
}

// together are the hints of everything that a Pod asks for.
func (m *Manager) together(p *corev1.Pod, all []corev1.Container) (out [][]Hint) {
	if m.Policy == None || m.Policy == "" {
		return nil
	}
	m.own(func() {
		if m.CPUs != nil {
			out = append(out, m.CPUs.PodHints(p))
		}
		if m.Memory != nil {
			out = append(out, m.Memory.PodHints(p))
		}
	})
	for _, o := range m.Others {
		for i := range all {
			for _, hints := range o.Hints(p, &all[i]) {
				out = append(out, hints)
			}
		}
	}
	return out
}

func (m *Manager) give(ctx context.Context, p *corev1.Pod, c *corev1.Container, near Hint) *pod.Verdict {
	for _, o := range m.Others {
		if err := o.Allocate(ctx, p, c, near); err != nil {
			return unexpected(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.CPUs != nil {
		if err := m.CPUs.Allocate(p, c, near); err != nil {
			if why, ok := errors.AsType[SMTAlignmentError](err); ok {
				return &pod.Verdict{Reason: why.Reason(), Message: why.Error(), Rejected: true}
			}
			return unexpected(err)
		}
	}
	if m.Memory != nil {
		if err := m.Memory.Allocate(p, c, near); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

func misaligned() *pod.Verdict {
	return &pod.Verdict{Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality", Rejected: true}
}

func unexpected(err error) *pod.Verdict {
	return &pod.Verdict{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Rejected: true}
}

// Has says that a Pod has something to give back.
func (m *Manager) Has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.CPUs != nil && m.CPUs.Has(uid) || m.Memory != nil && m.Memory.Has(uid)
}

// Forget takes back what a Pod had.
func (m *Manager) Forget(uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.release(uid) {
		return nil
	}
	return m.keep()
}

func (m *Manager) release(uid types.UID) bool {
	cpus := m.CPUs != nil && m.CPUs.Release(uid)
	memory := m.Memory != nil && m.Memory.Release(uid)
	return cpus || memory
}

// Keep takes back what Pods had that are not among those that live.
func (m *Manager) Keep(lives func(types.UID) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []types.UID
	if m.CPUs != nil {
		all = append(all, m.CPUs.Pods()...)
	}
	if m.Memory != nil {
		all = append(all, m.Memory.Pods()...)
	}
	gone := false
	for _, uid := range all {
		if !lives(uid) {
			gone = m.release(uid) || gone
		}
	}
	if !gone {
		return nil
	}
	return m.keep()
}

// Of is what a container runs on, as the runtime takes it: processors, and NUMA nodes for memory; empty for any.
func (m *Manager) Of(uid types.UID, container string) (cpus, nodes string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.CPUs != nil {
		cpus = m.CPUs.Of(uid, container)
	}
	if m.Memory != nil {
		nodes = m.Memory.Of(uid, container)
	}
	return cpus, nodes
}

// Exclusive says that a container, or without a name any of a Pod, has processors alone.
func (m *Manager) Exclusive(uid types.UID, container string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.CPUs == nil {
		return false
	}
	if container == "" {
		return m.CPUs.Has(uid)
	}
	_, has := m.CPUs.Exclusive(uid, container)
	return has
}

// Owns is what a container has alone, for who asks about it.
func (m *Manager) Owns(uid types.UID, container string) (cpus []int, memory []Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.CPUs != nil {
		if s, ok := m.CPUs.Exclusive(uid, container); ok {
			cpus = s.IDs()
		}
	}
	if m.Memory != nil {
		memory = slices.Clone(m.Memory.Blocks(uid, container))
	}
	return cpus, memory
}

// Givable is what could be given to containers: processors, and memory of each node.
func (m *Manager) Givable() (cpus []int, memory map[int]map[corev1.ResourceName]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	memory = map[int]map[corev1.ResourceName]int64{}
	if m.CPUs != nil {
		cpus = m.CPUs.givable().IDs()
	}
	if m.Memory != nil {
		for id, kinds := range m.Machine.Memory {
			memory[id] = map[corev1.ResourceName]int64{}
			for name := range kinds {
				memory[id][name] = m.Memory.capacity(MaskOf(id), name)
			}
		}
	}
	return cpus, memory
}
