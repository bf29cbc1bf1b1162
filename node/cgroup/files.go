package cgroup

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// file is a value to be written to a file of a cgroup.
type file struct {
	controller, name, value string
	// optional says that the kernel need not have the file.
	optional bool
}

// files returns the limits as files, in the order in which they are written.
func (h Host) files(l Limits) []file {
	if h.Version == 2 {
		return append(h.filesV2(l), h.hugePageFiles(l, "max", "rsvd.max")...)
	}
	return append(h.filesV1(l), h.hugePageFiles(l, "limit_in_bytes", "rsvd.limit_in_bytes")...)
}

// filesV1 returns the files of cgroup version 1.
func (h Host) filesV1(l Limits) (out []file) {
	if l.Shares != nil {
		out = append(out, file{controller: "cpu", name: "cpu.shares", value: strconv.FormatUint(*l.Shares, 10)})
	}
	if l.Period > 0 {
		out = append(out, file{controller: "cpu", name: "cpu.cfs_period_us", value: strconv.FormatInt(l.Period, 10), optional: true})
	}
	// A kernel without bandwidth control has no quotas; if none is set, that is no failure.
	quota := orNone(l.Quota)
	out = append(out, file{controller: "cpu", name: "cpu.cfs_quota_us", value: strconv.FormatInt(quota, 10), optional: quota < 0})
	out = append(out, file{controller: "memory", name: "memory.limit_in_bytes", value: strconv.FormatInt(orNone(l.Memory), 10)})
	return append(out, file{controller: "pids", name: "pids.max", value: orMax(l.Pids)})
}

// filesV2 returns the files of cgroup version 2.
func (h Host) filesV2(l Limits) (out []file) {
	if l.Shares != nil {
		out = append(out, file{controller: "cpu", name: "cpu.weight", value: strconv.FormatUint(weight(*l.Shares), 10)})
	}
	quota := "max"
	if q := orNone(l.Quota); q > 0 {
		quota = strconv.FormatInt(q, 10)
	}
	period := l.Period
	if period == 0 {
		period = defaultCFS
	}
	out = append(out,
		file{controller: "cpu", name: "cpu.max", value: fmt.Sprintf("%s %d", quota, period), optional: quota == "max"},
		file{controller: "memory", name: "memory.max", value: orMax(l.Memory)},
		file{controller: "pids", name: "pids.max", value: orMax(l.Pids)})
	for _, name := range slices.Sorted(maps.Keys(l.Unified)) {
		value := l.Unified[name]
		out = append(out, file{controller: "memory", name: name, value: value, optional: value == "0" || value == "max"})
	}
	return out
}

// hugePageFiles returns the files of huge pages, for each size that the kernel has.
func (h Host) hugePageFiles(l Limits, limit, reserved string) (out []file) {
	if l.Huge == nil {
		return nil
	}
	for _, size := range h.Pages {
		value := strconv.FormatInt(l.Huge[size], 10)
		out = append(out,
			file{controller: "hugetlb", name: "hugetlb." + size + "." + limit, value: value, optional: true},
			file{controller: "hugetlb", name: "hugetlb." + size + "." + reserved, value: value, optional: true})
	}
	return out
}

// properties returns the limits as properties of a systemd unit.
func (h Host) properties(l Limits) (out []string) {
	if l.Shares != nil {
		if h.Version == 2 {
			out = append(out, fmt.Sprintf("CPUWeight=%d", weight(*l.Shares)))
		} else {
			out = append(out, fmt.Sprintf("CPUShares=%d", *l.Shares))
		}
	}
	quota := "CPUQuota="
	if q := orNone(l.Quota); q > 0 && l.Period > 0 {
		// In percent of a CPU, rounded up, because systemd takes whole percents.
		quota = fmt.Sprintf("CPUQuota=%d%%", (q*100+l.Period-1)/l.Period)
	}
	memory := "MemoryLimit="
	if h.Version == 2 {
		memory = "MemoryMax="
	}
	out = append(out, quota, memory+orInfinity(l.Memory), "TasksMax="+orInfinity(l.Pids))
	if h.Version != 2 {
		return out
	}
	for _, p := range []struct{ file, property string }{{"memory.min", "MemoryMin"}, {"memory.low", "MemoryLow"},
		{"memory.high", "MemoryHigh"}} {
		if v, ok := l.Unified[p.file]; ok {
			if v == "max" {
				v = "infinity"
			}
			out = append(out, p.property+"="+v)
		}
	}
	return out
}

func orMax(p *int64) string {
	if p == nil || *p <= 0 {
		return "max"
	}
	return strconv.FormatInt(*p, 10)
}

func orInfinity(p *int64) string {
	if p == nil || *p <= 0 {
		return "infinity"
	}
	return strconv.FormatInt(*p, 10)
}

// orNone returns the value of p, and -1 for no limit, which 0 means too.
func orNone(p *int64) int64 {
	if p == nil || *p == 0 {
		return -1
	}
	return *p
}
