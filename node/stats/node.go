package stats

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// tick is the unit of /proc/stat: a hundredth of a second, on every architecture.
const tick = 10 * time.Millisecond

// node returns the CPU and memory usage of the machine from /proc, because not every machine has a root cgroup with
// counters.
func (s *Stats) node() summary.NodeStats {
	now := time.Now()
	out := summary.NodeStats{NodeName: s.Node}
	if busy, boot, known := parseStat(s.read("stat")); known {
		out.StartTime = timeOf(boot)
		out.CPU = &summary.CPUStats{Time: timeOf(now), UsageCoreNanoSeconds: &busy, UsageNanoCores: s.rates.of("/", busy, now)}
	}
	m := parseTable(s.read("meminfo"))
	total, known := m["MemTotal"]
	free, known2 := m["MemFree"]
	inactive, known3 := m["Inactive(file)"]
	if !known || !known2 || !known3 {
		return out // what cannot be read is unknown, not zero: Pods would be evicted
	}
	usage := total - min(total, free)
	working := usage - min(usage, inactive)
	rss := m["AnonPages"]
	out.Memory = &summary.MemoryStats{
		Time: timeOf(now), UsageBytes: &usage, WorkingSetBytes: &working, RSSBytes: &rss, AvailableBytes: new(total - min(total, working)),
	}
	v := parseTable(s.read("vmstat"))
	if faults, known := v["pgfault"]; known {
		out.Memory.PageFaults, out.Memory.MajorPageFaults = &faults, new(v["pgmajfault"])
	}
	out.Swap = &summary.SwapStats{Time: timeOf(now), SwapAvailableBytes: new(m["SwapFree"]),
		SwapUsageBytes: new(m["SwapTotal"] - min(m["SwapTotal"], m["SwapFree"]))}
	return out
}

// wholeNode adds disk, network and process statistics.
func (s *Stats) wholeNode(out *summary.NodeStats) {
	now := metav1.Now()
	out.Fs = fsStats(s.Dir)
	out.Network = network(parseNet(s.read("net/dev")), now)
	most, _ := strconv.ParseInt(strings.TrimSpace(s.read("sys/kernel/pid_max")), 10, 64)
	if threads, err := strconv.ParseInt(strings.TrimSpace(s.read("sys/kernel/threads-max")), 10, 64); err == nil && threads > 0 &&
		threads < most {
		most = threads
	}
	// In "0.20 0.18 0.12 1/80 11206", the second number of the fourth word counts the processes.
	if words := strings.Fields(s.read("loadavg")); len(words) >= 4 {
		_, all, _ := strings.Cut(words[3], "/")
		if n, err := strconv.ParseInt(all, 10, 64); err == nil && most > 0 {
			out.Rlimit = &summary.RlimitStats{Time: now, MaxPID: &most, NumOfRunningProcesses: &n}
		}
	}
}

// runtimeDisks returns the file systems of images and of containers' writable layers.
func (s *Stats) runtimeDisks(ctx context.Context) (images, containers *summary.FsStats, err error) {
	i, c, err := s.Runtime.Filesystems(ctx)
	if err != nil {
		return nil, nil, err
	}
	disk := func(d Disk) *summary.FsStats {
		f := fsStats(d.Path)
		if f != nil {
			f.UsedBytes, f.InodesUsed = &d.Bytes, &d.Inodes
		}
		return f
	}
	return disk(i), disk(c), nil
}

func (s *Stats) read(name string) string {
	text, err := os.ReadFile(filepath.Join(s.proc, name))
	if err != nil {
		return "" // this kernel has no such counters, or the process has too many files open
	}
	return string(text)
}

// parseStat returns how long the CPUs were busy, in nanoseconds, and when the machine booted, if the text has both.
func parseStat(text string) (busy uint64, boot time.Time, known bool) {
	hasCPU := false
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "btime":
			if n, err := strconv.ParseInt(words[1], 10, 64); err == nil {
				boot = time.Unix(n, 0)
			}
		case len(words) > 8 && words[0] == "cpu":
			hasCPU = true
			for _, i := range []int{1, 2, 3, 6, 7, 8} { // user nice system irq softirq steal, without idle and iowait
				n, _ := strconv.ParseUint(words[i], 10, 64)
				busy += n * uint64(tick)
			}
		}
	}
	return busy, boot, hasCPU && !boot.IsZero()
}

// parseTable parses lines of a name, with or without a colon, and a number, which may be in kB.
func parseTable(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			continue
		}
		if len(words) > 2 && words[2] == "kB" {
			n <<= 10
		}
		out[strings.TrimSuffix(words[0], ":")] = n
	}
	return out
}
