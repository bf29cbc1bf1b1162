package node

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/node/container"
	"proa.dev/node/cri"
	"proa.dev/node/device"
	"proa.dev/node/fact"
	"proa.dev/node/topology"
)

// Align says which Pods get processors and memory of their own, and how near each other what they use must be. The words are
// those of kubelets.
type Align struct {
	// CPUs is "static" to give whole processors to containers of guaranteed Pods that ask for whole ones; Memory is "Static" for
	// memory of certain NUMA nodes.
	CPUs, Memory string
	Options      topology.CPUOptions
	// Policy and WholePod are those of the topology manager.
	Policy   topology.Policy
	WholePod bool
	// ReservedCPUs are for the system; none takes as many as are reserved. ReservedMemory is what each NUMA node keeps; nil takes
	// what is reserved from the first ones.
	ReservedCPUs   topology.Set
	ReservedMemory map[int]map[corev1.ResourceName]int64
}

// machine reads how this machine is built. Nobody needs to know exactly where nothing is aligned.
func (c *Align) machine() (*topology.Machine, error) {
	m, err := topology.Read()
	if err != nil && c.CPUs != "static" && c.Memory != "Static" && (c.Policy == topology.None || c.Policy == "") {
		return &topology.Machine{Memory: map[int]map[corev1.ResourceName]int64{0: {}}}, nil
	}
	return m, err
}

// aligned is what the agent keeps of it.
type aligned struct {
	machine *topology.Machine
	// changed says that containers must move to other processors.
	changed chan struct{}
}

// openTopology makes the part that gives processors and memory.
func (a *Agent) openTopology() error {
	c, m := &a.Align, a.align.machine
	config := topology.Config{Policy: c.Policy, WholePod: c.WholePod, Machine: m, Others: []topology.Provider{a.devices}, Dir: a.Dir, Changed: a.move}
	var err error
	switch c.CPUs {
	case "", "none":
	case "static":
		if config.CPUs, err = topology.NewCPUs(m, c.ReservedCPUs, int(a.kept(corev1.ResourceCPU, nil)), c.Options); err != nil {
			return fmt.Errorf("the CPU manager: %w", err)
		}
	default:
		return fmt.Errorf("unknown policy of the CPU manager: %q; it may be none or static", c.CPUs)
	}
	switch c.Memory {
	case "", "None":
	case "Static":
		if config.Memory, err = a.memory(m); err != nil {
			return fmt.Errorf("the memory manager: %w", err)
		}
	default:
		return fmt.Errorf("unknown policy of the memory manager: %q; it may be None or Static", c.Memory)
	}
	a.topology, err = topology.New(config)
	return err
}

// memory is the static policy for memory. What is said to be reserved must be what is reserved.
func (a *Agent) memory(m *topology.Machine) (*topology.Memory, error) {
	var all int64
	for _, kinds := range m.Memory {
		all += kinds[corev1.ResourceMemory]
	}
	kept := a.kept(corev1.ResourceMemory, corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(all, resource.BinarySI)})
	reserved := a.Align.ReservedMemory
	if reserved == nil {
		reserved = m.Reserve(kept)
	}
	var sum int64
	for _, kinds := range reserved {
		sum += kinds[corev1.ResourceMemory]
	}
	if sum != kept {
		return nil, fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature",
			resource.NewQuantity(sum, resource.BinarySI).String(), corev1.ResourceMemory, resource.NewQuantity(kept, resource.BinarySI).String())
	}
	return topology.NewMemory(m, reserved)
}

// kept is what Pods cannot have of a resource: what is reserved, and with a capacity also what eviction keeps free. A part of a
// unit counts as a whole one.
func (a *Agent) kept(name corev1.ResourceName, capacity corev1.ResourceList) int64 {
	sum := a.SystemReserved[name].DeepCopy()
	sum.Add(a.KubeReserved[name])
	if capacity != nil {
		sum.Add(a.evicting(capacity)[name])
	}
	return sum.Value()
}

// reserveCPUs makes named processors those that are reserved.
func (a *Agent) reserveCPUs() error {
	n := len(a.Align.ReservedCPUs)
	if n == 0 {
		return nil
	}
	if all := a.align.machine.All(); len(all) > 0 && !all.Holds(a.Align.ReservedCPUs) {
		return fmt.Errorf("the reserved processors %s are not all there: there are %s", a.Align.ReservedCPUs, all)
	}
	a.SystemReserved, a.KubeReserved = maps.Clone(a.SystemReserved), maps.Clone(a.KubeReserved)
	if a.SystemReserved == nil {
		a.SystemReserved = corev1.ResourceList{}
	}
	a.SystemReserved[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	delete(a.KubeReserved, corev1.ResourceCPU)
	return nil
}

// pin is where a container runs.
func (a *Agent) pin(p *corev1.Pod, c *corev1.Container) container.Pin {
	cpus, nodes := a.topology.Of(p.UID, c.Name)
	return container.Pin{CPUs: cpus, Memory: nodes, Exclusive: a.topology.Exclusive(p.UID, c.Name)}
}

// exclusive says that a Pod has processors that are for none but it.
func (a *Agent) exclusive(p *corev1.Pod) bool { return a.topology.Exclusive(p.UID, "") }

// move asks for containers to be moved.
func (a *Agent) move() {
	select {
	case a.align.changed <- struct{}{}:
	default:
	}
}

// moveEvery is how often it is made sure that containers run where they shall: one may have started while others were moved.
const moveEvery = 10 * time.Second

// keepMoving moves running containers to the processors that are theirs, whenever those are others.
func (a *Agent) keepMoving(ctx context.Context) {
	if a.topology.CPUs == nil {
		return
	}
	tick := time.NewTicker(moveEvery)
	defer tick.Stop()
	on := map[string]string{} // by container
	for {
		on = a.moveAll(ctx, on)
		select {
		case <-ctx.Done():
			return
		case <-a.align.changed:
		case <-tick.C:
		}
	}
}

// moveAll tells the runtime about containers that are not where they shall be, and returns where all are then. Those that must
// leave go first: nobody shall meet them who has processors alone.
func (a *Agent) moveAll(ctx context.Context, on map[string]string) map[string]string {
	now := map[string]string{}
	for _, alone := range []bool{false, true} {
		for _, p := range a.pods.Pods() {
			if p.Facts == nil {
				continue
			}
			for i := range p.Facts.Containers {
				c := &p.Facts.Containers[i]
				if c.State != fact.Running || a.topology.Exclusive(p.Pod.UID, c.Name) != alone {
					continue
				}
				want, _ := a.topology.Of(p.Pod.UID, c.Name)
				if on[c.ID] != want {
					if err := a.place1(ctx, c.ID, want); err != nil {
						if ctx.Err() == nil && !cri.NotFound(err) {
							a.Log.WarnContext(ctx, "a container cannot be moved to other processors; it is tried again", "container", c.Name, "cpus", want, "err", err)
						}
						continue
					}
				}
				now[c.ID] = want
			}
		}
	}
	return now
}

func (a *Agent) place1(ctx context.Context, id, cpus string) error {
	_, err := a.cri.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{CpusetCpus: cpus}})
	return err
}

var _ topology.Provider = (*device.Manager)(nil)
