// Package stats says what the Pods of a node, and the node itself, use: processors, memory, disks and networks. It reads the
// kernel's own counters when it is asked, and asks the runtime only for what it alone knows. Nothing is sampled in between.
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

// Pods is who has the Pods of the node.
type Pods interface {
	Pods() []pod.Local
}

// Groups counts what processes use.
type Groups interface {
	// Parent is the group of a Pod.
	Parent(p *corev1.Pod) string
}

// Counters reads the counters of a group.
type Counters interface {
	Stats(group string) (cgroup.Usage, error)
}

// Runtime is what only the runtime knows.
type Runtime interface {
	// Layers are the sizes of what containers have written into their own filesystems, by their IDs.
	Layers(ctx context.Context) (map[string]Size, error)
	// Filesystems are the folders of images and of what containers write.
	Filesystems(ctx context.Context) (images, containers Disk, err error)
	NetworkNamespace(ctx context.Context, sandbox string) (string, error)
}

// Size is what something takes of a disk.
type Size struct{ Bytes, Inodes uint64 }

// Disk is a folder that is full to some extent.
type Disk struct {
	Path string
	Size
}

// Config is where numbers come from.
type Config struct {
	Node     string
	Pods     Pods
	Groups   Groups
	Counters Counters
	Runtime  Runtime
	// Dir has what Pods keep, below pods/UID.
	Dir string
	// VolumeOf is the volume that a claim is bound to, "" if nobody knows; nil to say nothing of claims.
	VolumeOf func(ctx context.Context, namespace, claim string) string
}

// Stats knows the numbers of a node.
type Stats struct {
	Config
	proc   string // where the kernel's files are
	rates  *rates
	disks  *disks
	spaces *spaces
}

// New makes the numbers of a node.
func New(c Config) *Stats {
	return &Stats{Config: c, proc: "/proc", rates: newRates(), disks: newDisks(), spaces: newSpaces(c.Runtime)}
}

// Depth is how much to say.
type Depth int

// The depths.
const (
	// Quick is processors and memory, which cost little.
	Quick Depth = iota
	// Whole is everything.
	Whole
)

// Summary is what everything uses now.
func (s *Stats) Summary(ctx context.Context, depth Depth) (*summary.Summary, error) {
	out := &summary.Summary{Node: s.node()}
	var layers map[string]Size
	var images, writable *summary.FsStats
	if depth == Whole {
		s.wholeNode(&out.Node)
		var err error
		if layers, err = s.Runtime.Layers(ctx); err != nil {
			return nil, err
		}
		if images, writable, err = s.runtimeDisks(ctx); err != nil {
			return nil, err
		}
		out.Node.Runtime = &summary.RuntimeStats{ImageFs: images, ContainerFs: writable}
	}
	seen := map[string]bool{"/": true}
	for _, l := range s.Pods.Pods() {
		if l.Pod == nil || l.Facts == nil || !begun(l.Facts) {
			continue
		}
		p := s.pod(l, seen)
		if depth == Whole {
			s.wholePod(ctx, l, &p, layers, writable)
		}
		out.Pods = append(out.Pods, p)
	}
	slices.SortFunc(out.Pods, func(a, b summary.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name, b.PodRef.Namespace+"/"+b.PodRef.Name)
	})
	s.rates.keep(seen)
	return out, nil
}

// begun says that a Pod has something that runs.
func begun(f *fact.Pod) bool { return len(f.Sandboxes) > 0 && f.Sandboxes[0].Ready }

// pod is what a Pod uses of processors and memory.
func (s *Stats) pod(l pod.Local, seen map[string]bool) summary.PodStats {
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
		seen[c.ID] = true
		st := summary.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.Started)}
		if u, err := s.container(parent, c.ID); err == nil {
			st.CPU, st.Memory, st.Swap, st.IO = s.cpu(c.ID, &u), memory(&u), swap(&u), pressured(&u)
		}
		out.Containers = append(out.Containers, st)
	}
	slices.SortFunc(out.Containers, func(a, b summary.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
	if u, err := s.Counters.Stats(parent); err == nil {
		seen[parent] = true
		out.CPU, out.Memory, out.Swap, out.IO = s.cpu(parent, &u), memory(&u), swap(&u), pressured(&u)
		out.ProcessStats = &summary.ProcessStats{ProcessCount: &u.Pids.Current}
	}
	return out
}

// container reads the counters of a container, in whatever group the runtime has put it.
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

func pressured(u *cgroup.Usage) *summary.IOStats {
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

func stamp(t time.Time) metav1.Time { return metav1.NewTime(t) }
