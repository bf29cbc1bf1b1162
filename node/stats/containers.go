package stats

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/pod"
)

// containerMetrics are those that dashboards of containers are made of, under the names of cAdvisor.
func containerMetrics() map[string]*prometheus.Desc {
	labels := []string{"container", "id", "image", "name", "namespace", "pod"}
	out := map[string]*prometheus.Desc{
		"container_cpu_usage_seconds_total": describe("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", append([]string{"cpu"}, labels...)...),
		"machine_cpu_cores":                 describe("machine_cpu_cores", "Number of logical CPU cores."),
		"machine_memory_bytes":              describe("machine_memory_bytes", "Amount of memory installed on the machine."),
		"scrape_error":                      describe("container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise"),
	}
	for name, help := range map[string]string{
		"container_memory_working_set_bytes": "Current working set in bytes.",
		"container_memory_usage_bytes":       "Current memory usage in bytes, including all memory regardless of when it was accessed",
		"container_memory_rss":               "Size of RSS in bytes.",
		"container_memory_swap":              "Container swap usage in bytes.",
		"container_fs_usage_bytes":           "Number of bytes that are consumed by the container on this filesystem.",
		"container_fs_inodes_total":          "Number of Inodes",
		"container_start_time_seconds":       "Start time of the container since unix epoch in seconds.",
		"container_processes":                "Number of processes running inside the container.",
	} {
		out[name] = describe(name, help, labels...)
	}
	for name, help := range map[string]string{
		"container_network_receive_bytes_total":   "Cumulative count of bytes received",
		"container_network_receive_errors_total":  "Cumulative count of errors encountered while receiving",
		"container_network_transmit_bytes_total":  "Cumulative count of bytes transmitted",
		"container_network_transmit_errors_total": "Cumulative count of errors encountered while transmitting",
	} {
		out[name] = describe(name, help, append([]string{"interface"}, labels...)...)
	}
	return out
}

// containers writes what containers use, and under an empty name what their Pods use.
func (s *Stats) containers(sum *summary.Summary, x *export) {
	cores := float64(runtime.NumCPU())
	x.gauge("machine_cpu_cores", &cores)
	if m := sum.Node.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		x.bytes("machine_memory_bytes", metav1.Time{}, new(*m.AvailableBytes+*m.WorkingSetBytes))
	}
	x.counted(sum.Node.CPU, sum.Node.Memory, sum.Node.Swap, []string{"", "/", "", "", "", ""})
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
		x.counted(p.CPU, p.Memory, p.Swap, labels)
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
		}
		for j := range p.Containers {
			c := &p.Containers[j]
			run, found := l.Facts.Of(c.Name)
			if !found {
				continue
			}
			labels := []string{c.Name, group + "/" + run.ID, run.Image, run.ID, p.PodRef.Namespace, p.PodRef.Name}
			x.counted(c.CPU, c.Memory, c.Swap, labels)
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

func (x *export) counted(cpu *summary.CPUStats, mem *summary.MemoryStats, swap *summary.SwapStats, labels []string) {
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
