package stats

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/cgroup"
	"proa.dev/node/pod"
)

// containerMetrics returns the metrics that dashboards of containers use, with the names of cAdvisor.
func containerMetrics() map[string]*prometheus.Desc {
	labels := []string{"container", "id", "image", "name", "namespace", "pod"}
	out := map[string]*prometheus.Desc{
		"container_cpu_usage_seconds_total": describe("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.",
			append([]string{"cpu"}, labels...)...),
		"machine_cpu_cores":    describe("machine_cpu_cores", "Number of logical CPU cores."),
		"machine_memory_bytes": describe("machine_memory_bytes", "Amount of memory installed on the machine."),
		"scrape_error": describe("container_scrape_error",
			"1 if there was an error while getting container metrics, 0 otherwise"),
	}
	for name, help := range map[string]string{
		"container_memory_working_set_bytes": "Current working set in bytes.",
		"container_memory_usage_bytes":       "Current memory usage in bytes, including all memory regardless of when it was accessed",
		"container_memory_rss":               "Size of RSS in bytes.",
		"container_memory_cache":             "Number of bytes of page cache memory.",
		"container_memory_swap":              "Container swap usage in bytes.",
		"container_fs_usage_bytes":           "Number of bytes that are consumed by the container on this filesystem.",
		"container_fs_inodes_total":          "Number of Inodes",
		"container_start_time_seconds":       "Start time of the container since unix epoch in seconds.",
		"container_processes":                "Number of processes running inside the container.",

		"container_cpu_cfs_periods_total":           "Number of elapsed enforcement period intervals.",
		"container_cpu_cfs_throttled_periods_total": "Number of throttled period intervals.",
		"container_cpu_cfs_throttled_seconds_total": "Total time duration the container has been throttled.",
	} {
		out[name] = describe(name, help, labels...)
	}
	for name, help := range map[string]string{
		"container_fs_reads_bytes_total":  "Cumulative count of bytes read",
		"container_fs_reads_total":        "Cumulative count of reads completed",
		"container_fs_writes_bytes_total": "Cumulative count of bytes written",
		"container_fs_writes_total":       "Cumulative count of writes completed",
	} {
		out[name] = describe(name, help, append([]string{"device"}, labels...)...)
	}
	for name, help := range map[string]string{
		"container_network_receive_bytes_total":            "Cumulative count of bytes received",
		"container_network_receive_errors_total":           "Cumulative count of errors encountered while receiving",
		"container_network_receive_packets_total":          "Cumulative count of packets received",
		"container_network_receive_packets_dropped_total":  "Cumulative count of packets dropped while receiving",
		"container_network_transmit_bytes_total":           "Cumulative count of bytes transmitted",
		"container_network_transmit_errors_total":          "Cumulative count of errors encountered while transmitting",
		"container_network_transmit_packets_total":         "Cumulative count of packets transmitted",
		"container_network_transmit_packets_dropped_total": "Cumulative count of packets dropped while transmitting",
	} {
		out[name] = describe(name, help, append([]string{"interface"}, labels...)...)
	}
	return out
}

// containers writes the usage of containers, and under an empty container name that of their Pods.
func (s *Stats) containers(sum *measurement, x *export) {
	cores := float64(runtime.NumCPU())
	x.gauge("machine_cpu_cores", &cores)
	if m := sum.Node.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		x.bytes("machine_memory_bytes", metav1.Time{}, new(*m.AvailableBytes+*m.WorkingSetBytes))
	}
	x.containerUsage(sum.Node.CPU, sum.Node.Memory, sum.Node.Swap, []string{"", "/", "", "", "", ""})
	local := map[string]pod.Local{}
	for _, l := range s.Pods.Pods() {
		if l.Pod != nil {
			local[string(l.Pod.UID)] = l
		}
	}
	for i := range sum.Pods {
		p := &sum.Pods[i]
		l, found := local[p.PodRef.UID]
		if !found || l.Facts == nil {
			continue
		}
		group := s.Groups.Parent(l.Pod)
		labels := []string{"", group, "", "", p.PodRef.Namespace, p.PodRef.Name}
		x.containerUsage(p.CPU, p.Memory, p.Swap, labels)
		x.groupUsage(sum.seen[group], s.devices, labels)
		if p.ProcessStats != nil {
			x.bytes("container_processes", metav1.Time{}, p.ProcessStats.ProcessCount, labels...)
		}
		if n := p.Network; n != nil {
			for _, i := range n.Interfaces {
				with := append([]string{i.Name}, labels...)
				x.counter("container_network_receive_bytes_total", n.Time, i.RxBytes, with...)
				x.counter("container_network_receive_errors_total", n.Time, i.RxErrors, with...)
				x.counter("container_network_transmit_bytes_total", n.Time, i.TxBytes, with...)
				x.counter("container_network_transmit_errors_total", n.Time, i.TxErrors, with...)
			}
			for _, i := range sum.packets[p.PodRef.UID] {
				with := append([]string{i.name}, labels...)
				x.counter("container_network_receive_packets_total", n.Time, &i.received, with...)
				x.counter("container_network_receive_packets_dropped_total", n.Time, &i.receivedDropped, with...)
				x.counter("container_network_transmit_packets_total", n.Time, &i.sent, with...)
				x.counter("container_network_transmit_packets_dropped_total", n.Time, &i.transmitDropped, with...)
			}
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			run, found := l.Facts.Of(c.Name)
			if !found {
				continue
			}
			labels := []string{c.Name, group + "/" + run.ID, run.Image, run.ID, p.PodRef.Namespace, p.PodRef.Name}
			x.containerUsage(c.CPU, c.Memory, c.Swap, labels)
			x.groupUsage(sum.seen[run.ID], s.devices, labels)
			if c.Rootfs != nil {
				x.bytes("container_fs_usage_bytes", c.Rootfs.Time, c.Rootfs.UsedBytes, labels...)
				x.bytes("container_fs_inodes_total", c.Rootfs.Time, c.Rootfs.Inodes, labels...)
			}
			if !c.StartTime.IsZero() {
				start := float64(c.StartTime.Unix())
				x.gauge("container_start_time_seconds", &start, labels...)
			}
		}
	}
}

func (x *export) containerUsage(cpu *summary.CPUStats, mem *summary.MemoryStats, swap *summary.SwapStats, labels []string) {
	if cpu != nil {
		x.seconds("container_cpu_usage_seconds_total", cpu.Time, cpu.UsageCoreNanoSeconds, append([]string{"total"}, labels...)...)
	}
	if mem != nil {
		x.bytes("container_memory_working_set_bytes", mem.Time, mem.WorkingSetBytes, labels...)
		x.bytes("container_memory_usage_bytes", mem.Time, mem.UsageBytes, labels...)
		x.bytes("container_memory_rss", mem.Time, mem.RSSBytes, labels...)
	}
	if swap != nil {
		x.bytes("container_memory_swap", swap.Time, swap.SwapUsageBytes, labels...)
	}
}

// groupUsage writes what only the cgroup knows: the page cache, how often the CPU limit was reached, and what was read from and
// written to disks. u may be nil.
func (x *export) groupUsage(u *cgroup.Usage, devices *deviceNames, labels []string) {
	if u == nil {
		return
	}
	at := metav1.NewTime(u.Time)
	x.bytes("container_memory_cache", at, &u.Memory.Cache, labels...)
	if u.CPU.Periods > 0 { // the kernel counts periods only if there is a limit
		x.counter("container_cpu_cfs_periods_total", at, &u.CPU.Periods, labels...)
		x.counter("container_cpu_cfs_throttled_periods_total", at, &u.CPU.Throttled, labels...)
		x.seconds("container_cpu_cfs_throttled_seconds_total", at, &u.CPU.ThrottledTime, labels...)
	}
	for number, d := range u.Disks {
		with := append([]string{devices.of(number)}, labels...)
		x.counter("container_fs_reads_bytes_total", at, &d.ReadBytes, with...)
		x.counter("container_fs_reads_total", at, &d.Reads, with...)
		x.counter("container_fs_writes_bytes_total", at, &d.WriteBytes, with...)
		x.counter("container_fs_writes_total", at, &d.Writes, with...)
	}
}

// deviceNames caches the names of block devices.
type deviceNames struct {
	sys   string     // where the kernel's files about devices are
	mu    sync.Mutex // guards names
	names map[string]string
}

func newDeviceNames() *deviceNames {
	return &deviceNames{sys: "/sys/dev/block", names: map[string]string{}}
}

// maxDevices limits the size of the cache.
const maxDevices = 1024

// of returns the name of a device with a number such as 8:0. A device without a name keeps its number, so that two devices never
// have the same label.
func (d *deviceNames) of(number string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, found := d.names[number]
	if found {
		return name
	}
	name = number
	if to, err := os.Readlink(filepath.Join(d.sys, number)); err == nil {
		name = "/dev/" + filepath.Base(to)
	}
	if len(d.names) >= maxDevices {
		clear(d.names)
	}
	d.names[number] = name
	return name
}
