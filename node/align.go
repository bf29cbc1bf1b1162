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
	"proa.dev/node/deviceplugin"
	"proa.dev/node/fact"
	"proa.dev/node/topology"
)

// ResourceManagers configures the CPU manager, the memory manager and the topology manager. Policies have the names that kubelets
// give them.
type ResourceManagers struct {
	// CPUs is the policy of the CPU manager: "static" gives whole CPUs to containers of Guaranteed Pods that request
	// whole CPUs. Memory is the policy of the memory manager: "Static" gives memory of certain NUMA nodes.
	CPUs, Memory string
	Options      topology.CPUOptions
	// Policy and WholePod are the policy and the scope of the topology manager.
	Policy   topology.Policy
	WholePod bool
	// ReservedCPUs are kept for the system; if it is empty, as many CPUs as the reserved amount says are kept.
	// ReservedMemory is what each NUMA node keeps; if it is nil, the reserved amount is taken from the first NUMA
	// nodes.
	ReservedCPUs   topology.Set
	ReservedMemory map[int]map[corev1.ResourceName]int64
}

// machine reads the CPU and NUMA topology of this machine. If no manager needs it, a machine whose topology cannot be
// read is treated as one NUMA node.
func (c *ResourceManagers) machine() (*topology.Machine, error) {
	m, err := topology.Read()
	if err != nil && c.CPUs != "static" && c.Memory != "Static" && (c.Policy == topology.None || c.Policy == "") {
		return &topology.Machine{Memory: map[int]map[corev1.ResourceName]int64{0: {}}}, nil
	}
	return m, err
}

// openTopology makes the topology manager, with the CPU manager and the memory manager that are configured.
func (a *Agent) openTopology() error {
	c, m := &a.ResourceManagers, a.machine
	config := topology.Config{Policy: c.Policy, WholePod: c.WholePod, Machine: m, Others: []topology.Provider{a.devices}, Dir: a.Dir,
		Changed: a.cpusChanged.Send}
	var err error
	switch c.CPUs {
	case "", "none":
	case "static":
		if config.CPUs, err = topology.NewCPUs(m, c.ReservedCPUs, int(a.reservedFor(corev1.ResourceCPU, nil)), c.Options); err != nil {
			return fmt.Errorf("the CPU manager: %w", err)
		}
	default:
		return fmt.Errorf("unknown policy of the CPU manager: %q; it may be none or static", c.CPUs)
	}
	switch c.Memory {
	case "", "None":
	case "Static":
		if config.Memory, err = a.newMemoryManager(m); err != nil {
			return fmt.Errorf("the memory manager: %w", err)
		}
	default:
		return fmt.Errorf("unknown policy of the memory manager: %q; it may be None or Static", c.Memory)
	}
	a.topology, err = topology.New(config)
	return err
}

// newMemoryManager makes the memory manager of the Static policy. The memory that is reserved by NUMA node must add up to the
// reserved amount.
func (a *Agent) newMemoryManager(m *topology.Machine) (*topology.Memory, error) {
	var all int64
	for _, kinds := range m.Memory {
		all += kinds[corev1.ResourceMemory]
	}
	kept := a.reservedFor(corev1.ResourceMemory, corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(all, resource.BinarySI)})
	reserved := a.ResourceManagers.ReservedMemory
	if reserved == nil {
		reserved = m.Reserve(kept)
	}
	var sum int64
	for _, kinds := range reserved {
		sum += kinds[corev1.ResourceMemory]
	}
	if sum != kept {
		return nil, fmt.Errorf("the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature",
			resource.NewQuantity(sum, resource.BinarySI).String(), corev1.ResourceMemory,
			resource.NewQuantity(kept, resource.BinarySI).String())
	}
	return topology.NewMemory(m, reserved)
}

// reservedFor returns how much of a resource Pods cannot have: what is reserved, and if a capacity is given also what eviction
// keeps free. Fractions of a unit are rounded up.
func (a *Agent) reservedFor(name corev1.ResourceName, capacity corev1.ResourceList) int64 {
	sum := a.SystemReserved[name].DeepCopy()
	sum.Add(a.KubeReserved[name])
	if capacity != nil {
		sum.Add(a.evictionReserve(capacity)[name])
	}
	return sum.Value()
}

// reserveCPUs makes the number of explicitly reserved CPUs the reserved amount of CPU.
func (a *Agent) reserveCPUs() error {
	n := len(a.ResourceManagers.ReservedCPUs)
	if n == 0 {
		return nil
	}
	if all := a.machine.All(); len(all) > 0 && !all.Holds(a.ResourceManagers.ReservedCPUs) {
		return fmt.Errorf("the reserved processors %s are not all there: there are %s", a.ResourceManagers.ReservedCPUs, all)
	}
	a.SystemReserved, a.KubeReserved = maps.Clone(a.SystemReserved), maps.Clone(a.KubeReserved)
	if a.SystemReserved == nil {
		a.SystemReserved = corev1.ResourceList{}
	}
	a.SystemReserved[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	delete(a.KubeReserved, corev1.ResourceCPU)
	return nil
}

// pinningOf returns the CPUs and NUMA nodes on which a container runs.
func (a *Agent) pinningOf(p *corev1.Pod, c *corev1.Container) container.Pin {
	cpus, nodes := a.topology.Of(p.UID, c.Name)
	return container.Pin{CPUs: cpus, Memory: nodes, Exclusive: a.topology.Exclusive(p.UID, c.Name)}
}

// hasExclusiveCPUs reports whether a Pod has exclusive CPUs.
func (a *Agent) hasExclusiveCPUs(p *corev1.Pod) bool { return a.topology.Exclusive(p.UID, "") }

// cpuReconcilePeriod is how often the CPU sets of running containers are checked: a container may have started while others were
// moved.
const cpuReconcilePeriod = 10 * time.Second

// reconcileCPUSets keeps the CPU sets of running containers as the CPU manager assigns them.
func (a *Agent) reconcileCPUSets(ctx context.Context) {
	if a.topology.CPUs == nil {
		return
	}
	tick := time.NewTicker(cpuReconcilePeriod)
	defer tick.Stop()
	current := map[string]string{} // CPU set by container ID
	for {
		current = a.updateCPUSets(ctx, current)
		select {
		case <-ctx.Done():
			return
		case <-a.cpusChanged:
		case <-tick.C:
		}
	}
}

// updateCPUSets updates the CPU sets of containers that differ from their assignment, and returns all CPU sets by container
// ID. Containers on shared CPUs are moved first, so that they have left a CPU before a container gets it exclusively.
func (a *Agent) updateCPUSets(ctx context.Context, before map[string]string) map[string]string {
	now := map[string]string{}
	for _, exclusive := range []bool{false, true} {
		for _, p := range a.pods.Pods() {
			if p.Facts == nil {
				continue
			}
			for i := range p.Facts.Containers {
				c := &p.Facts.Containers[i]
				if c.State != fact.Running || a.topology.Exclusive(p.Pod.UID, c.Name) != exclusive {
					continue
				}
				want, _ := a.topology.Of(p.Pod.UID, c.Name)
				if before[c.ID] != want {
					if err := a.updateCPUSet(ctx, c.ID, want); err != nil {
						if ctx.Err() == nil && !cri.NotFound(err) {
							a.Log.WarnContext(ctx, "a container cannot be moved to other processors; retrying", "container", c.Name, "cpus",
								want, "err", err)
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

func (a *Agent) updateCPUSet(ctx context.Context, id, cpus string) error {
	_, err := a.cri.UpdateContainerResources(ctx,
		&cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: &cri.LinuxContainerResources{CpusetCpus: cpus}})
	return err
}

var _ topology.Provider = (*deviceplugin.Manager)(nil)
