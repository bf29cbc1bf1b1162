package cgroup

import (
	"math"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/lib/quantity"
)

// PIDs is the resource name for processes in lists of resources. The API does not have it.
const PIDs corev1.ResourceName = "pid"

// Limits of the kernel.
const (
	minShares   = 2
	maxShares   = 262144
	cpuShares   = 1024
	minQuota    = 1000
	maxMilli    = 1 << 30
	defaultCFS  = 100000
	unboundHuge = int64(1) << 62
)

// Limits are the limits of a cgroup. What is nil is not limited.
type Limits struct {
	Shares *uint64
	Quota  *int64 // microseconds of a period
	Period int64  // 0 for the kernel's default
	Memory *int64
	Pids   *int64
	// Huge is a limit in bytes by page size. Sizes that are missing are forbidden.
	Huge map[string]int64
	// Unified are further files of version 2 with their values.
	Unified map[string]string
}

// Shares converts thousandths of a CPU to CPU shares of the kernel.
func Shares(milli int64) uint64 {
	if milli <= 0 {
		return minShares
	}
	return uint64(min(max(milli*cpuShares/1000, minShares), maxShares))
}

// MilliCPU converts CPU shares back to thousandths of a CPU; it is not exact.
func MilliCPU(shares uint64) int64 {
	if shares < minShares {
		return 0
	}
	return int64(math.Ceil(float64(shares*1000) / cpuShares))
}

// Quota converts thousandths of a CPU to the CPU time in a period, both in microseconds; 0 for no limit. The limit of more CPUs than any
// machine has is -1, which is none to the kernel: it refuses such numbers.
func Quota(milli, period int64) int64 {
	switch {
	case milli == 0:
		return 0
	case milli > maxMilli:
		return -1
	}
	return max(milli*period/1000, minQuota)
}

// weight converts CPU shares to the CPU weight of version 2.
func weight(shares uint64) uint64 {
	if shares >= maxShares {
		return 10000
	}
	return 1 + (max(shares, minShares)-2)*9999/262142
}

// sharesOf converts a weight back: it returns the smallest number of shares with that weight.
func sharesOf(weight uint64) uint64 { return ((max(weight, 1)-1)*262142+9998)/9999 + 2 }

// Policy says how the node limits Pods.
type Policy struct {
	// Period is the period of CPU quotas in microseconds, 0 for 100 ms.
	Period int64
	// NoQuota leaves CPU limits unenforced.
	NoQuota bool
	// PodPids limits the processes of a Pod, 0 for no limit.
	PodPids int64
	// Reserve protects requested memory from being reclaimed. It needs version 2.
	Reserve bool
	// Throttle is the fraction of the way from memory request to limit at which a Pod is throttled; 0 for never. It
	// needs version 2.
	Throttle float64
	// Exclusive reports whether a Pod has exclusive CPUs, which need no quota.
	Exclusive func(p *corev1.Pod) bool
}

func (o Policy) period() int64 {
	if o.Period == 0 {
		return defaultCFS
	}
	return o.Period
}

// LimitsOf returns the limits of a whole Pod. If one container has no limit, the Pod has none, unless there is a Pod-level
// limit.
func (o Policy) LimitsOf(p *corev1.Pod) Limits {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	class := QOSClass(p)
	l := Limits{Shares: new(Shares(quantity.MilliValue(requests.Cpu()))), Huge: hugePagesOf(requests)}
	if class == corev1.PodQOSBestEffort {
		l.Shares = new(uint64(minShares))
	} else {
		if class == corev1.PodQOSGuaranteed || isLimited(p, corev1.ResourceCPU) {
			l.Quota, l.Period = new(Quota(quantity.MilliValue(limits.Cpu()), o.period())), o.period()
			if o.NoQuota || o.Exclusive != nil && o.Exclusive(p) {
				l.Quota = new(int64(-1))
			}
		}
		if class == corev1.PodQOSGuaranteed || isLimited(p, corev1.ResourceMemory) {
			l.Memory = new(quantity.Value(limits.Memory()))
		}
	}
	if o.PodPids > 0 {
		l.Pids = new(o.PodPids)
	}
	l.Unified = o.memory(p, class, quantity.Value(requests.Memory()), quantity.Value(limits.Memory()))
	return l
}

// memory returns the files of version 2 for memory protection and throttling.
func (o Policy) memory(p *corev1.Pod, class corev1.PodQOSClass, request, limit int64) map[string]string {
	out := map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}
	if o.Reserve && request > 0 {
		file := "memory.low"
		if class == corev1.PodQOSGuaranteed {
			file = "memory.min"
		}
		out[file] = strconv.FormatInt(request, 10)
	}
	if o.Throttle > 0 && resourcehelper.IsPodLevelResourcesSet(p) && isLimited(p, corev1.ResourceMemory) {
		if high := MemoryHigh(request, limit, o.Throttle); high > 0 {
			out["memory.high"] = strconv.FormatInt(high, 10)
		}
	}
	return out
}

// MemoryHigh returns the memory.high of a Pod or container, 0 for none. If the limit equals the request, there is no
// throttling.
func MemoryHigh(request, limit int64, factor float64) int64 {
	if limit == 0 || request == limit {
		return 0
	}
	page := int64(os.Getpagesize())
	high := int64((float64(request)+float64(limit-request)*factor)/float64(page)) * page
	if high <= request {
		return 0
	}
	return high
}

// isLimited reports whether a resource is limited in every container, or for the whole Pod.
func isLimited(p *corev1.Pod, r corev1.ResourceName) bool {
	limited := func(list corev1.ResourceList) bool {
		q, ok := list[r]
		return ok && !q.IsZero()
	}
	if p.Spec.Resources != nil && limited(p.Spec.Resources.Limits) {
		return true
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if !limited(list[i].Resources.Limits) {
				return false
			}
		}
	}
	return true
}

func hugePagesOf(list corev1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for r, q := range list {
		if size, ok := PageSize(r); ok {
			out[PageName(size)] += quantity.Value(&q)
		}
	}
	return out
}

// PageSize returns the size of the huge pages of a resource, in bytes.
func PageSize(r corev1.ResourceName) (int64, bool) {
	text, ok := strings.CutPrefix(string(r), corev1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := quantity.Parse(text)
	if err != nil || q.Value() <= 0 {
		return 0, false
	}
	return q.Value(), true
}

// ofList returns the limits of a cgroup for a list of resources: for all Pods, or for reserved resources.
func ofList(list corev1.ResourceList) Limits {
	l := Limits{Huge: hugePagesOf(list)}
	if q, ok := list[corev1.ResourceCPU]; ok {
		l.Shares = new(Shares(quantity.MilliValue(&q)))
	}
	if q, ok := list[corev1.ResourceMemory]; ok {
		l.Memory = new(quantity.Value(&q))
	}
	if q, ok := list[PIDs]; ok {
		l.Pids = new(quantity.Value(&q))
	}
	return l
}
