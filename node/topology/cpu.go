package topology

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/podstate"
)

// CPUs is the CPU manager with the static policy: it gives exclusive CPUs to containers of Guaranteed Pods that request
// a whole number of them. All other containers share the rest. It does no I/O.
type CPUs struct {
	machine *Machine
	// reserved CPUs are for the system and are never exclusive.
	reserved Set
	options  CPUOptions
	state    CPUState
}

// CPUOptions are options of the static policy.
type CPUOptions struct {
	// WholeCores allocates only whole cores, and rejects requests that are no multiple of one (full-pcpus-only).
	WholeCores bool
	// Strict keeps the reserved CPUs also from the shared pool (strict-cpu-reservation).
	Strict bool
}

// CPUState is the allocations, as they are stored.
type CPUState struct {
	Policy  string                       `json:"policyName"`
	Shared  string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries,omitempty"`
}

// SMTAlignmentError says that a request is no multiple of the threads of a core.
type SMTAlignmentError struct{ Requested, PerCore int }

func (e SMTAlignmentError) Error() string {
	return fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", e.Requested, e.PerCore)
}

// Reason returns the reason of a Pod that is rejected for it.
func (e SMTAlignmentError) Reason() string { return "SMTAlignmentError" }

// NewCPUs makes the CPU manager. If reserved is empty, count CPUs are chosen to be reserved.
func NewCPUs(m *Machine, reserved Set, count int, o CPUOptions) (*CPUs, error) {
	if len(reserved) == 0 {
		if count <= 0 {
			return nil, fmt.Errorf("the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero")
		}
		var err error
		if reserved, err = m.take(m.All(), count); err != nil {
			return nil, err
		}
	}
	if !m.All().Holds(reserved) {
		return nil, fmt.Errorf("the reserved processors %s are not all there: there are %s", reserved, m.All())
	}
	c := &CPUs{machine: m, reserved: reserved, options: o, state: CPUState{Policy: "static", Entries: map[string]map[string]string{}}}
	c.computeShared()
	return c, nil
}

// Restore loads stored allocations, after a check that they fit the machine.
func (c *CPUs) Restore(s CPUState) error {
	if s.Policy != c.state.Policy {
		return fmt.Errorf("configured policy %q differs from state checkpoint policy %q", c.state.Policy, s.Policy)
	}
	given := Set{}
	for uid, containers := range s.Entries {
		for name, text := range containers {
			set, err := ParseSet(text)
			if err != nil {
				return err
			}
			if !c.allocatable().Holds(set) {
				return fmt.Errorf("pod: %s, container: %s cpuset: %q is not there any more", uid, name, text)
			}
			given = given.With(set)
		}
	}
	entries := s.Entries
	if entries == nil {
		entries = map[string]map[string]string{}
	}
	c.state.Entries = entries
	c.computeShared()
	return nil
}

// State returns what is to be stored.
func (c *CPUs) State() CPUState { return c.state }

// allocatable returns the CPUs that can be exclusive.
func (c *CPUs) allocatable() Set { return c.machine.All().Without(c.reserved) }

// computeShared computes the shared pool.
func (c *CPUs) computeShared() {
	shared := c.machine.All()
	for _, containers := range c.state.Entries {
		for _, text := range containers {
			set, _ := ParseSet(text) // it was checked when it was stored
			shared = shared.Without(set)
		}
	}
	if c.options.Strict {
		shared = shared.Without(c.reserved)
	}
	c.state.Shared = shared.String()
}

// Wants returns how many exclusive CPUs a container is to have.
func (c *CPUs) Wants(p *corev1.Pod, container *corev1.Container) int {
	q := container.Resources.Requests[corev1.ResourceCPU]
	if podspec.QOSClass(&p.Spec) != corev1.PodQOSGuaranteed || quantity.Value(&q)*1000 != quantity.MilliValue(&q) {
		return 0
	}
	return int(quantity.Value(&q))
}

// Of returns the CPU set of a container: its exclusive CPUs, or the shared pool.
func (c *CPUs) Of(uid types.UID, container string) string {
	if s, ok := c.state.Entries[string(uid)][container]; ok {
		return s
	}
	return c.state.Shared
}

// Exclusive returns the exclusive CPUs of a container.
func (c *CPUs) Exclusive(uid types.UID, container string) (Set, bool) {
	text, ok := c.state.Entries[string(uid)][container]
	if !ok {
		return nil, false
	}
	s, _ := ParseSet(text)
	return s, true
}

// free returns the CPUs that a container of a Pod could be given: those that are free, and those of init containers of
// the Pod that will have ended.
func (c *CPUs) free(p *corev1.Pod, container string) Set {
	shared, _ := ParseSet(c.state.Shared)
	return shared.Without(c.reserved).With(c.reusable(p, container))
}

// reusable returns the CPUs of init containers of the Pod that end before this one starts, without those that a
// container keeps.
func (c *CPUs) reusable(p *corev1.Pod, container string) Set {
	out, stays := Set{}, Set{}
	for i := range p.Spec.InitContainers {
		x := &p.Spec.InitContainers[i]
		if x.Name == container {
			break
		}
		set, _ := c.Exclusive(p.UID, x.Name)
		if podstate.IsSidecar(x) {
			stays = stays.With(set)
		} else {
			out = out.With(set)
		}
	}
	for i := range p.Spec.Containers {
		if x := &p.Spec.Containers[i]; x.Name != container {
			set, _ := c.Exclusive(p.UID, x.Name)
			stays = stays.With(set)
		}
	}
	return out.Without(stays)
}

// Hints returns the NUMA nodes from which the CPUs of a container could come; nil if it wants none.
func (c *CPUs) Hints(p *corev1.Pod, container *corev1.Container) []Hint {
	n := c.Wants(p, container)
	if n == 0 {
		return nil
	}
	if own, has := c.Exclusive(p.UID, container.Name); has {
		return c.hints(len(own), own, nil)
	}
	return c.hints(n, c.free(p, container.Name), c.reusable(p, container.Name))
}

// PodHints returns the NUMA nodes from which the CPUs of all containers of a Pod could come together.
func (c *CPUs) PodHints(p *corev1.Pod) []Hint {
	n, first, own := 0, 0, Set{}
	for i := range p.Spec.Containers {
		n += c.Wants(p, &p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		first = max(first, c.Wants(p, &p.Spec.InitContainers[i]))
	}
	for name := range c.state.Entries[string(p.UID)] {
		set, _ := c.Exclusive(p.UID, name)
		own = own.With(set)
	}
	switch {
	case max(n, first) == 0:
		return nil
	case len(own) > 0:
		return c.hints(len(own), own, nil)
	}
	return c.hints(max(n, first), c.free(p, ""), nil)
}

// hints returns the sets of NUMA nodes that have n free CPUs. The smallest sets that the machine allows are preferred.
func (c *CPUs) hints(n int, free, must Set) []Hint {
	least := 1 << 16
	out := []Hint{}
	for _, m := range Masks(c.machine.Nodes()) {
		in := c.machine.In(m)
		if len(in) >= n {
			least = min(least, m.Len())
		}
		have := 0
		for id := range free {
			if in.Has(id) {
				have++
			}
		}
		if have >= n && (len(must) == 0 || len(must) > n || in.Holds(must)) {
			out = append(out, Hint{Nodes: m})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least
	}
	return out
}

// Allocate allocates the CPUs of a container, near the nodes of a hint.
func (c *CPUs) Allocate(p *corev1.Pod, container *corev1.Container, near Hint) error {
	n := c.Wants(p, container)
	if _, has := c.Exclusive(p.UID, container.Name); n == 0 || has {
		return nil
	}
	if per := c.machine.Threads(); c.options.WholeCores && n%per != 0 {
		return SMTAlignmentError{n, per}
	}
	free, reuse := c.free(p, container.Name), c.reusable(p, container.Name)
	got := Set{}
	take := func(from Set) error {
		if len(from) == 0 || len(got) >= n {
			return nil
		}
		more, err := c.machine.take(from, min(n-len(got), len(from)))
		if err == nil {
			got = got.With(more)
		}
		return err
	}
	// CPUs that the Pod has already come first, then those near the hint, then the rest.
	inside := free
	if near.Nodes != 0 {
		inside = Set{}
		for id := range c.machine.In(near.Nodes) {
			if free.Has(id) {
				inside[id] = struct{}{}
			}
		}
	}
	if len(free) < n {
		return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n, len(free))
	}
	for _, from := range []func() Set{func() Set { return reuse }, func() Set { return inside.Without(got) },
		func() Set { return free.Without(got) }} {
		if err := take(from()); err != nil {
			return err
		}
	}
	if c.state.Entries[string(p.UID)] == nil {
		c.state.Entries[string(p.UID)] = map[string]string{}
	}
	c.state.Entries[string(p.UID)][container.Name] = got.String()
	c.computeShared()
	return nil
}

// Release releases the CPUs of a Pod.
func (c *CPUs) Release(uid types.UID) bool {
	_, had := c.state.Entries[string(uid)]
	delete(c.state.Entries, string(uid))
	c.computeShared()
	return had
}

// Has reports whether a Pod has exclusive CPUs.
func (c *CPUs) Has(uid types.UID) bool { return len(c.state.Entries[string(uid)]) > 0 }

// Pods returns the Pods that have exclusive CPUs.
func (c *CPUs) Pods() (out []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(c.state.Entries)) {
		out = append(out, types.UID(uid))
	}
	return out
}
