package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is the resource usage of a cgroup and those below it.
type Usage struct {
	Time   time.Time
	CPU    CPUUsage
	Memory MemoryUsage
	Pids   PidUsage
	IO     IOUsage
	// Disks is the usage of each disk, by its device number such as 8:0.
	Disks map[string]IOUsage
	// Pressure is the pressure stall information of cpu, memory and io. Only version 2 has it.
	Pressure map[string]Pressure
}

// CPUUsage is in nanoseconds since the cgroup was created.
type CPUUsage struct {
	Total uint64
	// Periods counts the periods with a quota, Throttled those in which it was used up, ThrottledTime how long
	// processes were stopped then.
	Periods, Throttled uint64
	ThrottledTime      uint64
}

// MemoryUsage is in bytes.
type MemoryUsage struct {
	Usage uint64
	// WorkingSet is the memory that cannot be reclaimed easily; eviction and autoscalers use it.
	WorkingSet         uint64
	RSS, Cache, Swap   uint64
	Limit              uint64 // 0 for none
	Faults, MajorFault uint64
	// OOMKills counts the processes that were killed because the limit was reached.
	OOMKills uint64
}

// PidUsage counts processes and threads.
type PidUsage struct {
	Current, Limit uint64 // a limit of 0 for none
}

// IOUsage is the sum of all disks.
type IOUsage struct {
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// Pressure is the share of time in which some, or all, processes waited.
type Pressure struct{ Some, Full Stall }

// Stall has averages in percent over 10, 60 and 300 seconds, and the sum in microseconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// unlimited is the value from which on version 1 means no limit.
const unlimited = 1 << 60

// Stats reads the usage of a cgroup. group is its path below the mount points, as Ensure returns it and the runtime
// extends it.
func (h Host) Stats(group string) (Usage, error) {
	r := reader{host: h, group: group}
	u := Usage{Time: time.Now()}
	if h.Version == 2 {
		r.unified(&u)
	} else {
		r.legacy(&u)
	}
	if r.err != nil {
		return Usage{}, fmt.Errorf("read what the group %s uses: %w", group, r.err)
	}
	return u, nil
}

// reader reads files of one cgroup and keeps the first error. A file that the kernel does not have counts as empty.
type reader struct {
	host  Host
	group string
	err   error
}

func (r *reader) text(controller, file string) string {
	dir := r.host.dir(controller, r.group)
	if dir == "" || r.err != nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	// A cgroup that is removed meanwhile is no error; and some files exist but cannot be read.
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.EOPNOTSUPP) {
		r.err = err
	}
	return strings.TrimSpace(string(text))
}

// number reads a file with one number; "max" and a missing file are 0.
func (r *reader) number(controller, file string) uint64 {
	n, _ := strconv.ParseUint(r.text(controller, file), 10, 64)
	return n
}

// table reads lines with a word and a number.
func (r *reader) table(controller, file string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(r.text(controller, file)) {
		word, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64); err == nil {
			out[word] = n
		}
	}
	return out
}

// mustExist fails if the cgroup does not exist.
func (r *reader) mustExist(controller, file string) {
	if r.err == nil {
		_, r.err = os.Stat(filepath.Join(r.host.dir(controller, r.group), file))
	}
}

func (r *reader) legacy(u *Usage) {
	r.mustExist("memory", "memory.usage_in_bytes")
	u.CPU.Total = r.number("cpuacct", "cpuacct.usage")
	cpu := r.table("cpu", "cpu.stat")
	u.CPU.Periods, u.CPU.Throttled, u.CPU.ThrottledTime = cpu["nr_periods"], cpu["nr_throttled"], cpu["throttled_time"]
	stat := r.table("memory", "memory.stat")
	u.Memory = MemoryUsage{
		Usage: r.number("memory", "memory.usage_in_bytes"), Limit: r.number("memory", "memory.limit_in_bytes"),
		RSS: stat["total_rss"], Cache: stat["total_cache"], Swap: stat["total_swap"],
		Faults: stat["total_pgfault"], MajorFault: stat["total_pgmajfault"],
		OOMKills: r.table("memory", "memory.oom_control")["oom_kill"],
	}
	if u.Memory.Limit >= unlimited {
		u.Memory.Limit = 0
	}
	u.Memory.WorkingSet = u.Memory.Usage - min(u.Memory.Usage, stat["total_inactive_file"])
	u.Pids = PidUsage{Current: r.number("pids", "pids.current"), Limit: r.number("pids", "pids.max")}
	bytes := r.text("blkio", "blkio.throttle.io_service_bytes_recursive")
	u.Disks = legacyDisks(bytes, r.text("blkio", "blkio.throttle.io_serviced_recursive"))
	u.IO = sumOf(u.Disks)
}

// sumOf adds up the usage of disks.
func sumOf(disks map[string]IOUsage) (out IOUsage) {
	for _, d := range disks {
		out.ReadBytes, out.WriteBytes = out.ReadBytes+d.ReadBytes, out.WriteBytes+d.WriteBytes
		out.Reads, out.Writes = out.Reads+d.Reads, out.Writes+d.Writes
	}
	return out
}

// legacyDisks parses lines like "8:0 Read 4096", of bytes and of operations.
func legacyDisks(bytes, operations string) map[string]IOUsage {
	out := map[string]IOUsage{}
	parse := func(text string, add func(d *IOUsage, kind string, n uint64)) {
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			n, _ := strconv.ParseUint(f[2], 10, 64)
			d := out[f[0]]
			add(&d, f[1], n)
			out[f[0]] = d
		}
	}
	parse(bytes, func(d *IOUsage, kind string, n uint64) {
		switch kind {
		case "Read":
			d.ReadBytes = n
		case "Write":
			d.WriteBytes = n
		}
	})
	parse(operations, func(d *IOUsage, kind string, n uint64) {
		switch kind {
		case "Read":
			d.Reads = n
		case "Write":
			d.Writes = n
		}
	})
	return out
}

func (r *reader) unified(u *Usage) {
	r.mustExist("cpu", "cgroup.procs")
	cpu := r.table("cpu", "cpu.stat")
	u.CPU = CPUUsage{
		Total: cpu["usage_usec"] * 1000, Periods: cpu["nr_periods"], Throttled: cpu["nr_throttled"],
		ThrottledTime: cpu["throttled_usec"] * 1000,
	}
	stat := r.table("memory", "memory.stat")
	u.Memory = MemoryUsage{
		Usage: r.number("memory", "memory.current"), Limit: r.number("memory", "memory.max"),
		RSS: stat["anon"], Cache: stat["file"], Swap: r.number("memory", "memory.swap.current"),
		Faults: stat["pgfault"], MajorFault: stat["pgmajfault"],
		OOMKills: r.table("memory", "memory.events")["oom_kill"],
	}
	u.Memory.WorkingSet = u.Memory.Usage - min(u.Memory.Usage, stat["inactive_file"])
	u.Pids = PidUsage{Current: r.number("pids", "pids.current"), Limit: r.number("pids", "pids.max")}
	u.Disks = unifiedDisks(r.text("io", "io.stat"))
	u.IO = sumOf(u.Disks)
	u.Pressure = map[string]Pressure{}
	for _, what := range []string{"cpu", "memory", "io"} {
		if text := r.text(what, what+".pressure"); text != "" {
			u.Pressure[what] = parsePressure(text)
		}
	}
}

// unifiedDisks parses lines like "8:0 rbytes=4096 wbytes=0 rios=1 wios=0".
func unifiedDisks(text string) map[string]IOUsage {
	out := map[string]IOUsage{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		var d IOUsage
		for _, pair := range f[1:] {
			key, value, _ := strings.Cut(pair, "=")
			n, _ := strconv.ParseUint(value, 10, 64)
			switch key {
			case "rbytes":
				d.ReadBytes = n
			case "wbytes":
				d.WriteBytes = n
			case "rios":
				d.Reads = n
			case "wios":
				d.Writes = n
			}
		}
		out[f[0]] = d
	}
	return out
}

// parsePressure reads lines like "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func parsePressure(text string) (out Pressure) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var s Stall
		for _, pair := range f[1:] {
			key, value, _ := strings.Cut(pair, "=")
			percent, _ := strconv.ParseFloat(value, 64)
			switch key {
			case "avg10":
				s.Avg10 = percent
			case "avg60":
				s.Avg60 = percent
			case "avg300":
				s.Avg300 = percent
			case "total":
				s.Total, _ = strconv.ParseUint(value, 10, 64)
			}
		}
		switch f[0] {
		case "some":
			out.Some = s
		case "full":
			out.Full = s
		}
	}
	return out
}
