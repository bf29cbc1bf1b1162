// Package stats measures what the Pods of a node, and the node itself, use of CPU, memory, disks and network. It reads
// the kernel's counters on request, and asks the runtime only for what the kernel does not know. Nothing is sampled in
// between.
package stats

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/cgroup"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

// Pods returns the Pods of the node.
type Pods interface {
	Pods() []pod.Local
}

// Groups knows the cgroups of Pods.
type Groups interface {
	// Parent returns the cgroup of a Pod.
	Parent(p *corev1.Pod) string
}

// Counters reads the counters of a cgroup.
type Counters interface {
	Stats(group string) (cgroup.Usage, error)
}

// Runtime provides what only the runtime knows.
type Runtime interface {
	// Layers returns the sizes of the containers' writable layers, by container ID.
	Layers(ctx context.Context) (map[string]Size, error)
	// Filesystems returns the folders of images and of writable layers.
	Filesystems(ctx context.Context) (images, containers Disk, err error)
	NetworkNamespace(ctx context.Context, sandbox string) (string, error)
}

// Size is an amount of disk space.
type Size struct{ Bytes, Inodes uint64 }

// Disk is a folder and its size.
type Disk struct {
	Path string
	Size
}

// Config is what Stats needs.
type Config struct {
	Node     string
	Pods     Pods
	Groups   Groups
	Counters Counters
	Runtime  Runtime
	// Dir is the data folder of the agent, with the Pods' folders below pods/UID.
	Dir string
	// VolumeOf returns the volume that a claim is bound to, empty if unknown; if it is nil, claims are left out.
	VolumeOf func(ctx context.Context, namespace, claim string) string
}

// Stats provides the statistics of a node.
type Stats struct {
	Config
	proc        string // where the kernel's files are
	rates       *rates
	folderSizes *folderSizes
	namespaces  *namespaces
	devices     *deviceNames
}

// New makes a Stats.
func New(c Config) *Stats {
	return &Stats{
		Config: c, proc: "/proc", rates: newRates(), folderSizes: newFolderSizes(), namespaces: newNamespaces(c.Runtime),
		devices: newDeviceNames(),
	}
}

// Depth says how much to measure.
type Depth int

// The depths.
const (
	// Quick is CPU and memory, which cost little.
	Quick Depth = iota
	// Whole is everything.
	Whole
)

// measurement is what was measured of the node and its Pods at one moment.
type measurement struct {
	summary.Summary
	seen     map[string]*cgroup.Usage // the usage of cgroups, by container ID or by the cgroup of a Pod
	packets  map[string][]packets     // by the UID of the Pod
	layers   map[string]Size          // the sizes of writable layers, by container ID
	writable *summary.FsStats         // the file system of writable layers
}

// Summary measures the node and its Pods.
func (s *Stats) Summary(ctx context.Context, depth Depth) (*summary.Summary, error) {
	m, err := s.measure(ctx, depth)
	if err != nil {
		return nil, err
	}
	return &m.Summary, nil
}

// measure measures the node and its Pods.
func (s *Stats) measure(ctx context.Context, depth Depth) (*measurement, error) {
	out := &measurement{Summary: summary.Summary{Node: s.node()}, seen: map[string]*cgroup.Usage{"/": nil}, packets: map[string][]packets{}}
	if depth == Whole {
		s.wholeNode(&out.Node)
		var err error
		if out.layers, err = s.Runtime.Layers(ctx); err != nil {
			return nil, err
		}
		var images *summary.FsStats
		if images, out.writable, err = s.runtimeDisks(ctx); err != nil {
			return nil, err
		}
		out.Node.Runtime = &summary.RuntimeStats{ImageFs: images, ContainerFs: out.writable}
	}
	walks, stop := context.WithTimeout(ctx, walkTimeOfAll)
	defer stop()
	for _, l := range s.Pods.Pods() {
		if l.Pod == nil || l.Facts == nil || !isRunning(l.Facts) {
			continue
		}
		p := s.pod(l, out.seen)
		if depth == Whole {
			s.wholePod(ctx, walks, l, &p, out)
		}
		out.Pods = append(out.Pods, p)
	}
	slices.SortFunc(out.Pods, func(a, b summary.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name, b.PodRef.Namespace+"/"+b.PodRef.Name)
	})
	s.rates.dropOthers(out.seen)
	return out, nil
}

// isRunning reports whether a Pod has a running sandbox.
func isRunning(f *fact.Pod) bool { return len(f.Sandboxes) > 0 && f.Sandboxes[0].Ready }

// pod returns the CPU and memory usage of a Pod, and notes the usage of its cgroups in seen.
func (s *Stats) pod(l pod.Local, seen map[string]*cgroup.Usage) summary.PodStats {
	p := l.Pod
	out := summary.PodStats{
		PodRef:    summary.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		StartTime: metav1.NewTime(l.Facts.Sandboxes[0].Created), Containers: []summary.ContainerStats{},
	}
	parent := s.Groups.Parent(p)
	for i := range l.Facts.Containers {
		c := &l.Facts.Containers[i]
		if c.State != fact.Running {
			continue
		}
		seen[c.ID] = nil
		st := summary.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.Started)}
		if u, err := s.container(parent, c.ID); err == nil {
			seen[c.ID] = &u
			st.CPU, st.Memory, st.Swap, st.IO = s.cpu(c.ID, &u), memory(&u), swap(&u), ioStats(&u)
		}
		out.Containers = append(out.Containers, st)
	}
	slices.SortFunc(out.Containers, func(a, b summary.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
	if u, err := s.Counters.Stats(parent); err == nil {
		seen[parent] = &u
		out.CPU, out.Memory, out.Swap, out.IO = s.cpu(parent, &u), memory(&u), swap(&u), ioStats(&u)
		out.ProcessStats = &summary.ProcessStats{ProcessCount: &u.Pids.Current}
	}
	return out
}

// container reads the counters of a container, in whichever cgroup the runtime has put it.
func (s *Stats) container(parent, id string) (u cgroup.Usage, err error) {
	for _, name := range []string{id, "cri-containerd-" + id + ".scope", "crio-" + id + ".scope", "crio-" + id} {
		if u, err = s.Counters.Stats(parent + "/" + name); err == nil {
			return u, nil
		}
	}
	return u, err
}

func (s *Stats) cpu(key string, u *cgroup.Usage) *summary.CPUStats {
	out := &summary.CPUStats{Time: metav1.NewTime(u.Time), UsageCoreNanoSeconds: &u.CPU.Total, PSI: pressure(u, "cpu")}
	out.UsageNanoCores = s.rates.of(key, u.CPU.Total, u.Time)
	return out
}

func memory(u *cgroup.Usage) *summary.MemoryStats {
	m := &u.Memory
	out := &summary.MemoryStats{
		Time: metav1.NewTime(u.Time), UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet, RSSBytes: &m.RSS,
		PageFaults: &m.Faults, MajorPageFaults: &m.MajorFault, PSI: pressure(u, "memory"),
	}
	if m.Limit > 0 {
		out.AvailableBytes = new(m.Limit - min(m.Limit, m.WorkingSet))
	}
	return out
}

func swap(u *cgroup.Usage) *summary.SwapStats {
	return &summary.SwapStats{Time: metav1.NewTime(u.Time), SwapUsageBytes: &u.Memory.Swap}
}

func ioStats(u *cgroup.Usage) *summary.IOStats {
	if p := pressure(u, "io"); p != nil {
		return &summary.IOStats{Time: metav1.NewTime(u.Time), PSI: p}
	}
	return nil
}

func pressure(u *cgroup.Usage, of string) *summary.PSIStats {
	p, known := u.Pressure[of]
	if !known {
		return nil
	}
	data := func(s cgroup.Stall) summary.PSIData {
		return summary.PSIData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &summary.PSIStats{Some: data(p.Some), Full: data(p.Full)}
}

func timeOf(t time.Time) metav1.Time { return metav1.NewTime(t) }
