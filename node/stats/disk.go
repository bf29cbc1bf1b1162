package stats

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/node/pod"
)

// fsStats returns the usage of the file system of a folder; nil if the folder does not exist.
func fsStats(path string) *summary.FsStats {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return nil
	}
	unit := uint64(st.Bsize)
	return &summary.FsStats{
		Time: metav1.Now(), AvailableBytes: new(st.Bavail * unit), CapacityBytes: new(st.Blocks * unit),
		UsedBytes:  new((st.Blocks - st.Bfree) * unit),
		InodesFree: new(st.Ffree), Inodes: new(st.Files), InodesUsed: new(st.Files - st.Ffree),
	}
}

// folderSizes caches the sizes of folders: computing them takes time.
type folderSizes struct {
	mu    sync.Mutex // guards sizes
	sizes map[string]cachedSize
}

type cachedSize struct {
	Size
	at time.Time
}

// sizeCacheTime is how long a size is cached; upstream measures volumes as often.
const sizeCacheTime = time.Minute

func newFolderSizes() *folderSizes { return &folderSizes{sizes: map[string]cachedSize{}} }

// of returns the size of a folder with its contents, on the same file system.
func (d *folderSizes) of(ctx context.Context, path string, now time.Time) Size {
	d.mu.Lock()
	was, found := d.sizes[path]
	for p, s := range d.sizes {
		if now.Sub(s.at) > 2*sizeCacheTime {
			delete(d.sizes, p) // no longer asked for
		}
	}
	d.mu.Unlock()
	if found && now.Sub(was.at) < sizeCacheTime {
		return was.Size
	}
	size := measure(ctx, path)
	d.mu.Lock()
	d.sizes[path] = cachedSize{size, now}
	d.mu.Unlock()
	return size
}

// measure adds up the blocks of files, each file once. Files that are removed meanwhile do not count.
func measure(ctx context.Context, root string) (out Size) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	var device uint64
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return ctx.Err()
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // the file was removed meanwhile
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if path == root {
			device = st.Dev
		}
		if st.Dev != device {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		f := file{st.Dev, st.Ino}
		if st.Nlink > 1 && !d.IsDir() {
			if seen[f] {
				return nil
			}
			seen[f] = true
		}
		out.Bytes += uint64(st.Blocks) * 512
		out.Inodes++
		return nil
	})
	return out
}

// wholePod adds what a Pod uses of disks and of the network.
func (s *Stats) wholePod(ctx context.Context, l pod.Local, out *summary.PodStats, m *measurement) {
	now := metav1.Now()
	out.Network, m.packets[out.PodRef.UID] = s.namespaces.of(ctx, &l.Facts.Sandboxes[0], now)
	own := fsStats(s.Dir)
	var sum Size
	add := func(z Size) { sum.Bytes, sum.Inodes = sum.Bytes+z.Bytes, sum.Inodes+z.Inodes }
	for i := range out.Containers {
		c := &out.Containers[i]
		run, found := l.Facts.Of(c.Name)
		if !found {
			continue
		}
		layer := m.layers[run.ID]
		c.Rootfs = withUsage(m.writable, layer, now)
		add(layer)
		if run.LogPath != "" {
			log := s.folderSizes.of(ctx, filepath.Dir(run.LogPath), now.Time)
			c.Logs = withUsage(own, log, now)
			add(log)
		}
	}
	for i := range l.Pod.Spec.Volumes {
		v := &l.Pod.Spec.Volumes[i]
		st, local, found := s.volume(ctx, l.Pod, v, now)
		if !found {
			continue
		}
		out.VolumeStats = append(out.VolumeStats, st)
		if local {
			add(Size{*st.UsedBytes, *st.InodesUsed})
		}
	}
	// Files that the agent makes for containers: /etc/hosts and termination messages.
	for _, name := range []string{"etc-hosts", "containers"} {
		add(s.folderSizes.of(ctx, filepath.Join(s.Dir, "pods", string(l.Pod.UID), name), now.Time))
	}
	out.EphemeralStorage = withUsage(own, sum, now)
}

// withUsage returns the statistics of a file system, with the size of a part of it as the usage.
func withUsage(of *summary.FsStats, z Size, now metav1.Time) *summary.FsStats {
	out := &summary.FsStats{Time: now, UsedBytes: &z.Bytes, InodesUsed: &z.Inodes}
	if of != nil {
		out.AvailableBytes, out.CapacityBytes, out.InodesFree, out.Inodes = of.AvailableBytes, of.CapacityBytes, of.InodesFree, of.Inodes
	}
	return out
}

// volume returns the usage of a volume. Volumes in the Pod's own folder count as its ephemeral storage, unless they are
// in memory.
func (s *Stats) volume(ctx context.Context, p *corev1.Pod, v *corev1.Volume, now metav1.Time) (st summary.VolumeStats, local, found bool) {
	plugin, claim := "", ""
	switch {
	case v.EmptyDir != nil:
		plugin, local = "empty-dir", v.EmptyDir.Medium == corev1.StorageMediumDefault
	case v.ConfigMap != nil:
		plugin, local = "configmap", true
	case v.Secret != nil:
		plugin = "secret"
	case v.DownwardAPI != nil:
		plugin, local = "downward-api", true
	case v.Projected != nil:
		plugin = "projected"
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = p.Name + "-" + v.Name
	default:
		return st, false, false
	}
	st.Name = v.Name
	if claim != "" {
		st.PVCRef = &summary.PVCReference{Name: claim, Namespace: p.Namespace}
		st, found := s.claimStats(ctx, p, st)
		return st, false, found
	}
	dir := filepath.Join(s.Dir, "pods", string(p.UID), "volumes", "kubernetes.io~"+plugin, v.Name)
	whole := fsStats(dir)
	if whole == nil {
		return st, false, false
	}
	st.FsStats = *withUsage(whole, s.folderSizes.of(ctx, dir, now.Time), now)
	return st, local, true
}

// claimStats returns the usage of a claim's volume: of a file system of its own, or of the larger one it is a folder of.
// Where it is mounted depends on the plugin.
func (s *Stats) claimStats(ctx context.Context, p *corev1.Pod, st summary.VolumeStats) (_ summary.VolumeStats, found bool) {
	if s.VolumeOf == nil {
		return st, false
	}
	name := s.VolumeOf(ctx, p.Namespace, st.PVCRef.Name)
	if name == "" || name != filepath.Base(name) {
		return st, false
	}
	all, err := filepath.Glob(filepath.Join(s.Dir, "pods", string(p.UID), "volumes", "*", name))
	if err != nil {
		return st, false
	}
	for _, dir := range all {
		for _, at := range []string{filepath.Join(dir, "mount"), dir} {
			if f := fsStats(at); f != nil {
				st.FsStats = *f
				return st, true
			}
		}
	}
	return st, false
}
