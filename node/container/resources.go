package container

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/cgroup"
	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
)

// amounts are the resources of a cgroup: CPU in thousandths, memory in bytes, 0 for no limit.
type amounts struct {
	request, cpu, memory int64
	exclusive            bool
}

func (l Limits) toCRI(a amounts) *cri.LinuxContainerResources {
	out := &cri.LinuxContainerResources{CpuShares: int64(cgroup.Shares(a.request)), MemoryLimitInBytes: a.memory}
	if !l.Policy.NoQuota {
		out.CpuPeriod, out.CpuQuota = l.Policy.Period, cgroup.Quota(a.cpu, l.Policy.Period)
		if a.exclusive {
			out.CpuQuota = -1
		}
	}
	if l.Host.Version == 2 && !l.SingleProcessOOM {
		out.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return out
}

// Resources returns the resource limits of a container, for its creation and for an in-place resize.
func (m *Maker) Resources(p *corev1.Pod, c *corev1.Container) *cri.LinuxContainerResources {
	l := m.Limits
	cpu, memory := l.limit(p, c, corev1.ResourceCPU), l.limit(p, c, corev1.ResourceMemory)
	a := amounts{request: cpu, cpu: cpu, memory: memory}
	if q, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		a.request = quantity.MilliValue(&q)
	}
	var pin Pin
	if l.Pin != nil {
		pin = l.Pin(p, c)
	}
	a.exclusive = pin.Exclusive
	out := l.toCRI(a)
	out.CpusetCpus, out.CpusetMems = pin.CPUs, pin.Memory
	out.OomScoreAdj = int64(oomScore(p, c, l.Memory))
	out.HugepageLimits = l.hugePageLimits(p, c)
	l.swap(out, p, c)
	if l.Host.Version == 2 {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		maps.Copy(out.Unified, l.memoryProtection(p, c, m.Allocatable))
	}
	return out
}

// limit returns the limit of a container, or that of its Pod if it has none: thousandths of CPUs, bytes of memory.
func (l Limits) limit(p *corev1.Pod, c *corev1.Container, r corev1.ResourceName) int64 {
	q := c.Resources.Limits[r]
	if q.IsZero() && resourcehelper.IsPodLevelResourcesSet(p) {
		q = p.Spec.Resources.Limits[r]
	}
	if r == corev1.ResourceCPU {
		return quantity.MilliValue(&q)
	}
	return quantity.Value(&q)
}

// memoryProtection returns the memory protection and throttling of a container (memory.min, memory.low, memory.high).
func (l Limits) memoryProtection(p *corev1.Pod, c *corev1.Container, allocatable func() corev1.ResourceList) map[string]string {
	request, limit := quantity.Value(c.Resources.Requests.Memory()), quantity.Value(c.Resources.Limits.Memory())
	out := map[string]string{"memory.min": "0", "memory.low": "0"}
	if l.Policy.Reserve && request != 0 {
		file := "memory.low"
		if cgroup.QOSClass(p) == corev1.PodQOSGuaranteed {
			file = "memory.min"
		}
		out = map[string]string{file: strconv.FormatInt(request, 10)}
	}
	ofPod := limit == 0 && p.Spec.Resources != nil && !p.Spec.Resources.Limits.Memory().IsZero() // the Pod's cgroup is throttled instead
	if l.Policy.Throttle > 0 && !ofPod {
		if limit == 0 && allocatable != nil {
			all := allocatable()
			limit = all.Memory().Value()
		}
		if high := cgroup.MemoryHigh(request, limit, l.Policy.Throttle); high > 0 {
			out["memory.high"] = strconv.FormatInt(high, 10)
		}
	}
	return out
}

// hugePageLimits returns the limits of huge pages; sizes that are not requested get 0. The limit of the container takes
// precedence over that of the Pod.
func (l Limits) hugePageLimits(p *corev1.Pod, c *corev1.Container) (out []*cri.HugepageLimit) {
	want := map[string]uint64{}
	add := func(list corev1.ResourceList) {
		for r, q := range list {
			if size, ok := cgroup.PageSize(r); ok {
				want[cgroup.PageName(size)] = uint64(max(quantity.Value(&q), 0))
			}
		}
	}
	if p.Spec.Resources != nil {
		add(p.Spec.Resources.Limits)
	}
	add(c.Resources.Limits)
	for _, size := range l.Host.Pages {
		out = append(out, &cri.HugepageLimit{PageSize: size, Limit: want[size]})
	}
	return out
}

// swap sets the limit of swap, if the kernel supports one. Cgroup version 1 can only forbid swap beyond the memory
// limit.
func (l Limits) swap(out *cri.LinuxContainerResources, p *corev1.Pod, c *corev1.Container) {
	if !l.Host.Swap {
		return
	}
	if l.Host.Version != 2 {
		out.MemorySwapLimitInBytes = out.MemoryLimitInBytes
		return
	}
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	out.Unified["memory.swap.max"] = strconv.FormatInt(l.swapOf(p, c), 10)
}

// MayUseSwap reports whether a container may use swap.
func (l Limits) MayUseSwap(p *corev1.Pod, c *corev1.Container) bool {
	return l.Host.Swap && l.Host.Version == 2 && l.swapOf(p, c) > 0
}

// swapOf returns the swap of a container: the share of the machine's swap that equals its share of the memory. A
// container that requests no memory, or as much as its limit, gets none.
func (l Limits) swapOf(p *corev1.Pod, c *corev1.Container) int64 {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	if !l.AllowSwap || fact.Critical(p) || cgroup.QOSClass(p) != corev1.PodQOSBurstable || request.Cmp(*limit) == 0 {
		return 0
	}
	if l.Memory <= 0 || quantity.Value(request) > l.Memory {
		return 0
	}
	return int64(float64(request.Value()) / float64(l.Memory) * float64(l.Swap))
}

// The range of oom_score_adj that is used.
const (
	oomScoreMin = -997
	oomScoreMax = 1000
)

// oomScore returns the oom_score_adj of a container, by which the kernel chooses what to kill when the machine runs out
// of memory: Guaranteed containers last, and of the others those first that use more than they requested.
func oomScore(p *corev1.Pod, c *corev1.Container, memory int64) int {
	if fact.Critical(p) && p.Spec.PriorityClassName == "system-node-critical" {
		return oomScoreMin
	}
	switch cgroup.QOSClass(p) {
	case corev1.PodQOSGuaranteed:
		return oomScoreMin
	case corev1.PodQOSBestEffort:
		return oomScoreMax
	}
	if memory <= 0 {
		return oomScoreMax - 1
	}
	extra := shareOfPod(p)
	score := 1000 - 1000*(quantity.Value(c.Resources.Requests.Memory())+extra)/memory
	if sidecar(p, c) {
		least := quantity.Value(p.Spec.Containers[0].Resources.Requests.Memory())
		for i := range p.Spec.Containers {
			least = min(least, quantity.Value(p.Spec.Containers[i].Resources.Requests.Memory()))
		}
		score = min(score, 1000-1000*(least+extra)/memory)
	}
	return int(min(max(score, 1000+oomScoreMin), oomScoreMax-1))
}

// shareOfPod returns a container's share of the memory that the Pod requests beyond its containers' requests.
func shareOfPod(p *corev1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(p) || p.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	sum := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	rest := quantity.Value(p.Spec.Resources.Requests.Memory()) - quantity.Value(sum.Memory())
	return max(rest, 0) / int64(len(p.Spec.Containers)+len(p.Spec.InitContainers))
}

func sidecar(p *corev1.Pod, c *corev1.Container) bool {
	return podstate.IsSidecar(c) && len(p.Spec.Containers) > 0 &&
		slices.ContainsFunc(p.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
}
