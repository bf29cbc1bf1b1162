package cgroup

import (
	"math"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/quantity"
)

// PIDs is the name under which lists of resources count processes. The API does not know it.
const PIDs corev1.ResourceName = "pid"

// Bounds of the kernel.
const (
	minShares   = 2
	maxShares   = 262144
	cpuShares   = 1024
	minQuota    = 1000
	defaultCFS  = 100000
	unboundHuge = int64(1) << 62
)

// Limits is what a group may use. What is nil is not limited.
type Limits struct {
	Shares *uint64
	Quota  *int64 // microseconds a period
	Period int64  // 0 for the kernel's
	Memory *int64
	Pids   *int64
	// Huge leads from a page size to bytes. Sizes that are absent are forbidden.
	Huge map[string]int64
	// Unified are files of version 2 with their values.
	Unified map[string]string
}

// Shares are the kernel's for some thousandths of a CPU.
func Shares(milli int64) uint64 {
	if milli <= 0 {
		return minShares
	}
	return uint64(min(max(milli*cpuShares/1000, minShares), maxShares))
}

// Milli undoes Shares, as well as that goes.
func Milli(shares uint64) int64 {
	if shares < minShares {
		return 0
	}
	return int64(math.Ceil(float64(shares*1000) / cpuShares))
}

// Quota is the time that some thousandths of a CPU get of a period, both in microseconds; 0 for no limit.
func Quota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuota)
}

// weight is what version 2 has for shares.
func weight(shares uint64) uint64 {
	if shares >= maxShares {
		return 10000
	}
	return 1 + (max(shares, minShares)-2)*9999/262142
}

// sharesOf undoes weight: of the shares with that weight it returns the fewest.
func sharesOf(weight uint64) uint64 { return ((max(weight, 1)-1)*262142+9998)/9999 + 2 }

// Policy is how the node limits Pods.
type Policy struct {
	// Period is that of CPU quotas in microseconds, 0 for 100 ms.
	Period int64
	// NoQuota leaves CPU limits unenforced.
	NoQuota bool
	// PodPids bounds the processes of a Pod, 0 for no bound.
	PodPids int64
	// Reserve protects requested memory from being reclaimed. It needs version 2.
	Reserve bool
	// Throttle slows a Pod down before it reaches its memory limit, at this part of the way from request to limit; 0 for never.
	// It needs version 2.
	Throttle float64
	// Exclusive says of a Pod that it has CPUs of its own, which no quota may slow down.
	Exclusive func(p *corev1.Pod) bool
}

func (o Policy) period() int64 {
	if o.Period == 0 {
		return defaultCFS
	}
	return o.Period
}

// Of are the limits of a whole Pod. A container without a limit makes the Pod one without, unless the Pod has its own.
func (o Policy) Of(p *corev1.Pod) Limits {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	class := Class(p)
	l := Limits{Shares: new(Shares(requests.Cpu().MilliValue())), Huge: hugeOf(requests)}
	if class == corev1.PodQOSBestEffort {
		l.Shares = new(uint64(minShares))
	} else {
		if class == corev1.PodQOSGuaranteed || declared(p, corev1.ResourceCPU) {
			l.Quota, l.Period = new(Quota(limits.Cpu().MilliValue(), o.period())), o.period()
			if o.NoQuota || o.Exclusive != nil && o.Exclusive(p) {
				l.Quota = new(int64(-1))
			}
		}
		if class == corev1.PodQOSGuaranteed || declared(p, corev1.ResourceMemory) {
			l.Memory = new(limits.Memory().Value())
		}
	}
	if o.PodPids > 0 {
		l.Pids = new(o.PodPids)
	}
	l.Unified = o.memory(p, class, requests.Memory().Value(), limits.Memory().Value())
	return l
}

// memory are the files of version 2 that soften how memory is taken away.
func (o Policy) memory(p *corev1.Pod, class corev1.PodQOSClass, request, limit int64) map[string]string {
	out := map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}
	if o.Reserve && request > 0 {
		file := "memory.low"
		if class == corev1.PodQOSGuaranteed {
			file = "memory.min"
		}
		out[file] = strconv.FormatInt(request, 10)
	}
	if o.Throttle > 0 && resourcehelper.IsPodLevelResourcesSet(p) && declared(p, corev1.ResourceMemory) {
		if high := High(request, limit, o.Throttle); high > 0 {
			out["memory.high"] = strconv.FormatInt(high, 10)
		}
	}
	return out
}

// High is where memory begins to be reclaimed hard, 0 for nowhere. Who may not use more than requested is not slowed down.
func High(request, limit int64, factor float64) int64 {
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

// declared says that the use of a resource is limited in every container, or for the whole Pod.
func declared(p *corev1.Pod, r corev1.ResourceName) bool {
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

func hugeOf(list corev1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for r, q := range list {
		if size, ok := PageSize(r); ok {
			out[PageName(size)] += q.Value()
		}
	}
	return out
}

// PageSize is the size of the huge pages that a resource counts, in bytes.
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

// ofList are the limits of a group that shall hold a list of resources: all Pods, or what is reserved for something else.
func ofList(list corev1.ResourceList) Limits {
	l := Limits{Huge: hugeOf(list)}
	if q, ok := list[corev1.ResourceCPU]; ok {
		l.Shares = new(Shares(q.MilliValue()))
	}
	if q, ok := list[corev1.ResourceMemory]; ok {
		l.Memory = new(q.Value())
	}
	if q, ok := list[PIDs]; ok {
		l.Pids = new(q.Value())
	}
	return l
}
