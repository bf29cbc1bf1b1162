package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resources "k8s.io/component-helpers/resource"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/kinds/lib/quantity"
)

// usages is the resource usage of Pods.
type usages map[types.UID]*statsv1.PodStats

func usagesOf(s *statsv1.Summary) usages {
	out := usages{}
	for i := range s.Pods {
		out[types.UID(s.Pods[i].PodRef.UID)] = &s.Pods[i]
	}
	return out
}

// rank sorts Pods by eviction order: Pods that use more than they requested first, then those of lower priority, then
// those that exceed their request most. Pods without statistics come first of all.
func rank(pods []*corev1.Pod, s Signal, use usages, l Layout) []*corev1.Pod {
	type row struct {
		pod             *corev1.Pod
		unknown, exceed int // 0 comes first
		priority        int32
		over            int64
	}
	var rows []row
	for _, p := range pods {
		r := row{pod: p, exceed: 1, priority: priority(p)}
		if u := use[p.UID]; u != nil {
			r.unknown = 1
			used := used(p, u, s, l)
			asked := request(p, resourceOf(s))
			if used > asked || resourceOf(s) == pids {
				r.exceed = 0
			}
			r.over = used - asked
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		if resourceOf(s) == pids {
			return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.unknown, b.unknown), cmp.Compare(b.over, a.over))
		}
		return cmp.Or(cmp.Compare(a.unknown, b.unknown), cmp.Compare(a.exceed, b.exceed), cmp.Compare(a.priority, b.priority),
			cmp.Compare(b.over, a.over))
	})
	out := make([]*corev1.Pod, len(rows))
	for i, r := range rows {
		out[i] = r.pod
	}
	return out
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority != nil {
		return *p.Spec.Priority
	}
	return 0
}

// request returns what a Pod requests, including its overhead.
func request(p *corev1.Pod, name corev1.ResourceName) int64 {
	q, found := resources.PodRequests(p, resources.PodResourcesOptions{SkipContainerLevelResources: false, ExcludeOverhead: true})[name]
	if !found || q.IsZero() {
		return 0
	}
	if over, found := p.Spec.Overhead[name]; found {
		q.Add(over)
	}
	return quantity.Value(&q)
}

// used returns how much a Pod uses of the resource of a signal.
func used(p *corev1.Pod, u *statsv1.PodStats, s Signal, l Layout) int64 {
	switch resourceOf(s) {
	case corev1.ResourceMemory:
		if u.Memory != nil {
			return number(u.Memory.WorkingSetBytes)
		}
		return 0
	case pids:
		if u.ProcessStats != nil {
			return number(u.ProcessStats.ProcessCount)
		}
		return 0
	}
	of := func(f *statsv1.FsStats) int64 {
		switch {
		case f == nil:
			return 0
		case resourceOf(s) == inodes:
			return number(f.InodesUsed)
		}
		return number(f.UsedBytes)
	}
	root, rest := fileSystemsOf(s, l)
	var sum int64
	for i := range u.Containers {
		if root {
			sum += of(u.Containers[i].Rootfs)
		}
		if rest {
			sum += of(u.Containers[i].Logs)
		}
	}
	if rest {
		for i := range u.VolumeStats {
			if isLocalVolume(p, u.VolumeStats[i].Name) {
				sum += of(&u.VolumeStats[i].FsStats)
			}
		}
	}
	return sum
}

// fileSystemsOf reports whether writable layers (root), and logs and local volumes (rest), are on the file system of a signal.
func fileSystemsOf(s Signal, l Layout) (root, rest bool) {
	ofImages := s == ImageFsAvailable || s == ImageFsInodesFree
	ofNode := s == NodeFsAvailable || s == NodeFsInodesFree
	switch {
	case !l.Images:
		return true, true
	case l.Containers: // writable layers are on the file system that Pods write to
		return !ofImages, !ofImages
	case ofNode:
		return false, true
	}
	return true, false
}

// isLocalVolume reports whether a volume is on the node's own disk.
func isLocalVolume(p *corev1.Pod, name string) bool {
	for _, v := range p.Spec.Volumes {
		if v.Name == name {
			return v.HostPath != nil || v.ConfigMap != nil || v.GitRepo != nil || v.EmptyDir != nil &&
				v.EmptyDir.Medium == corev1.StorageMediumDefault
		}
	}
	return false
}

func number(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}

func inBytes(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }
