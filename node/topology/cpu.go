package topology

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/core"
)

// CPUs gives whole processors to containers that ask for a whole number of them, in Pods that are guaranteed what they ask for.
// Everybody else shares the rest. It is the static policy, and pure but for what it remembers.
type CPUs struct {
	machine *Machine
	// Reserved are for the system and never given to one container alone.
	reserved Set
	options  CPUOptions
	state    CPUState
}

// CPUOptions change how processors are given.
type CPUOptions struct {
	// WholeCores gives only whole cores, and refuses what is no multiple of one.
	WholeCores bool
	// Strict keeps the reserved processors from everybody, also from those who share.
	Strict bool
}

// CPUState is what is given to whom, as it is stored.
type CPUState struct {
	Policy  string                       `json:"policyName"`
	Shared  string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries,omitempty"`
}

// SMTAlignmentError says that whole cores were asked for in a number that is none.
type SMTAlignmentError struct{ Requested, PerCore int }

func (e SMTAlignmentError) Error() string {
	return fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", e.Requested, e.PerCore)
}

// Reason is the reason of a Pod that is refused for it.
func (e SMTAlignmentError) Reason() string { return "SMTAlignmentError" }

// NewCPUs makes the static policy. Without a set of reserved processors, so many are chosen as are reserved.
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
	c.share()
	return c, nil
}

// Restore takes what was stored, after a check that it fits the machine.
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
			if !c.givable().Holds(set) {
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
	c.share()
	return nil
}

// State is what is to be stored.
func (c *CPUs) State() CPUState { return c.state }

// givable are the processors that a container may have alone.
func (c *CPUs) givable() Set { return c.machine.All().Without(c.reserved) }

// share works out what is left for everybody.
func (c *CPUs) share() {
	shared := c.machine.All()
	for _, containers := range c.state.Entries {
		for _, text := range containers {
			set, _ := ParseSet(text) // it was checked when it was put there
			shared = shared.Without(set)
		}
	}
	if c.options.Strict {
		shared = shared.Without(c.reserved)
	}
	c.state.Shared = shared.String()
}

// Wants is how many processors a container is to have alone.
func (c *CPUs) Wants(p *corev1.Pod, container *corev1.Container) int {
	q := container.Resources.Requests[corev1.ResourceCPU]
	if core.QOS(&p.Spec) != corev1.PodQOSGuaranteed || q.Value()*1000 != q.MilliValue() {
		return 0
	}
	return int(q.Value())
}

// Of is what a container runs on: what it has alone, or what all share.
func (c *CPUs) Of(uid types.UID, container string) string {
	if s, ok := c.state.Entries[string(uid)][container]; ok {
		return s
	}
	return c.state.Shared
}

// Exclusive is what a container has alone.
func (c *CPUs) Exclusive(uid types.UID, container string) (Set, bool) {
	text, ok := c.state.Entries[string(uid)][container]
	if !ok {
		return nil, false
	}
	s, _ := ParseSet(text)
	return s, true
}

// free is what a container of a Pod could be given: what nobody has, and what init containers of the Pod that end had.
func (c *CPUs) free(p *corev1.Pod, container string) Set {
	shared, _ := ParseSet(c.state.Shared)
	return shared.Without(c.reserved).With(c.reusable(p, container))
}

// reusable is what init containers of the Pod that end before this one have and no container that stays has.
func (c *CPUs) reusable(p *corev1.Pod, container string) Set {
	out, stays := Set{}, Set{}
	for i := range p.Spec.InitContainers {
		x := &p.Spec.InitContainers[i]
		if x.Name == container {
			break
		}
		set, _ := c.Exclusive(p.UID, x.Name)
		if x.RestartPolicy != nil && *x.RestartPolicy == corev1.ContainerRestartPolicyAlways {
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

// Hints are where the processors of a container could come from; nil if it wants none.
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

// PodHints are where the processors of all containers of a Pod could come from together.
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

// hints are the sets of nodes that have n free processors. Those are preferred that have as few nodes as the machine allows.
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

// Allocate gives a container its processors, near the nodes of a hint.
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
	// What the Pod has already comes first, then what is near, then the rest.
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
	for _, from := range []func() Set{func() Set { return reuse }, func() Set { return inside.Without(got) }, func() Set { return free.Without(got) }} {
		if err := take(from()); err != nil {
			return err
		}
	}
	if c.state.Entries[string(p.UID)] == nil {
		c.state.Entries[string(p.UID)] = map[string]string{}
	}
	c.state.Entries[string(p.UID)][container.Name] = got.String()
	c.share()
	return nil
}

// Release takes back what the containers of a Pod had.
func (c *CPUs) Release(uid types.UID) bool {
	_, had := c.state.Entries[string(uid)]
	delete(c.state.Entries, string(uid))
	c.share()
	return had
}

// Has says that a Pod has processors alone.
func (c *CPUs) Has(uid types.UID) bool { return len(c.state.Entries[string(uid)]) > 0 }

// Pods are those that have processors alone.
func (c *CPUs) Pods() (out []types.UID) {
	for _, uid := range slices.Sorted(maps.Keys(c.state.Entries)) {
		out = append(out, types.UID(uid))
	}
	return out
}
