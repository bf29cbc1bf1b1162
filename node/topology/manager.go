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
	"proa.dev/node/podstate"
)

// Provider allocates resources that are near certain NUMA nodes, such as devices.
type Provider interface {
	// Hints returns the hints of each resource of a container: nil if any node will do, empty if it cannot be
	// allocated.
	Hints(p *corev1.Pod, c *corev1.Container) map[string][]Hint
	// Allocate allocates the resources of a container, near some nodes.
	Allocate(ctx context.Context, p *corev1.Pod, c *corev1.Container, near Hint) error
}

// Config is what a Manager needs. CPUs and Memory are nil for the policy none.
type Config struct {
	Policy Policy
	// WholePod aligns all containers of a Pod together (the scope pod).
	WholePod bool
	Machine  *Machine
	CPUs     *CPUs
	Memory   *Memory
	// Others allocate devices.
	Others []Provider
	// Dir is the folder of the state.
	Dir string
	// Changed is called when the shared pool has changed, so that the CPU sets of running containers must be updated.
	Changed func()
}

// Manager is the topology manager: it allocates the resources of a Pod during its admission.
type Manager struct {
	Config
	// admitting serializes admissions: other providers, which may be slow, are called without holding mu.
	admitting sync.Mutex

	mu     sync.Mutex // guards CPUs, Memory and shared
	shared string
}

// New makes a manager with the stored state. A state that does not fit the machine is an error: the administrator must
// remove the file, because containers still run according to it.
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

// save stores the state, and calls Changed if the shared pool has changed. The caller holds the lock.
func (m *Manager) save() error {
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

// Admit allocates the resources of a Pod's containers, or returns why the Pod is rejected. Existing allocations stay.
func (m *Manager) Admit(ctx context.Context, p *corev1.Pod) *podstate.Termination {
	m.admitting.Lock()
	defer m.admitting.Unlock()
	v := m.admit(ctx, p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if v != nil {
		m.release(p.UID)
		return v
	}
	if err := m.save(); err != nil {
		m.release(p.UID)
		return unexpected(err)
	}
	return nil
}

func (m *Manager) admit(ctx context.Context, p *corev1.Pod) *podstate.Termination {
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	var whole Hint
	if m.WholePod {
		best, ok := merge(m.Policy, m.Machine.Nodes(), m.podHints(p, all))
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
			if best, ok = merge(m.Policy, m.Machine.Nodes(), m.hintsOf(p, c)); !ok {
				return misaligned()
			}
		}
		if v := m.allocate(ctx, p, c, best); v != nil {
			return v
		}
	}
	return nil
}

// locked calls a function with the lock held.
func (m *Manager) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

// hintsOf returns the hints of every resource of a container.
func (m *Manager) hintsOf(p *corev1.Pod, c *corev1.Container) (out [][]Hint) {
	if m.Policy == None || m.Policy == "" {
		return nil
	}
	m.locked(func() {
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

// podHints returns the hints of all resources of a Pod.
func (m *Manager) podHints(p *corev1.Pod, all []corev1.Container) (out [][]Hint) {
	if m.Policy == None || m.Policy == "" {
		return nil
	}
	m.locked(func() {
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

func (m *Manager) allocate(ctx context.Context, p *corev1.Pod, c *corev1.Container, near Hint) *podstate.Termination {
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
				return &podstate.Termination{Reason: why.Reason(), Message: why.Error(), Rejected: true}
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

func misaligned() *podstate.Termination {
	return &podstate.Termination{Reason: "TopologyAffinityError", Message: "Resources cannot be allocated with Topology locality",
		Rejected: true}
}

func unexpected(err error) *podstate.Termination {
	return &podstate.Termination{Reason: "UnexpectedAdmissionError",
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Rejected: true}
}

// Has reports whether a Pod has allocations.
func (m *Manager) Has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.CPUs != nil && m.CPUs.Has(uid) || m.Memory != nil && m.Memory.Has(uid)
}

// Release releases the allocations of a Pod.
func (m *Manager) Release(uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.release(uid) {
		return nil
	}
	return m.save()
}

func (m *Manager) release(uid types.UID) bool {
	cpus := m.CPUs != nil && m.CPUs.Release(uid)
	memory := m.Memory != nil && m.Memory.Release(uid)
	return cpus || memory
}

// ReleaseStale releases the allocations of Pods that do not live any more.
func (m *Manager) ReleaseStale(lives func(types.UID) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []types.UID
	if m.CPUs != nil {
		all = append(all, m.CPUs.Pods()...)
	}
	if m.Memory != nil {
		all = append(all, m.Memory.Pods()...)
	}
	released := false
	for _, uid := range all {
		if !lives(uid) {
			released = m.release(uid) || released
		}
	}
	if !released {
		return nil
	}
	return m.save()
}

// Of returns the cpuset of a container, in the notation of the kernel: CPUs, and NUMA nodes for memory; empty for any.
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

// Exclusive reports whether a container, or any container of the Pod if container is empty, has exclusive CPUs.
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

// ExclusiveOf returns the exclusive CPUs and memory of a container.
func (m *Manager) ExclusiveOf(uid types.UID, container string) (cpus []int, memory []Block) {
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

// Allocatable returns what can be allocated: CPUs, and memory of each NUMA node.
func (m *Manager) Allocatable() (cpus []int, memory map[int]map[corev1.ResourceName]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	memory = map[int]map[corev1.ResourceName]int64{}
	if m.CPUs != nil {
		cpus = m.CPUs.allocatable().IDs()
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
