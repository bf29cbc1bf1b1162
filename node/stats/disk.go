package stats

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	summary "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"golang.org/x/sys/unix"

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
	at   time.Time
	keep time.Duration // how long it counts as new
}

const (
	// sizeCacheTime is how long a size is cached at least; upstream measures volumes as often.
	sizeCacheTime = time.Minute
	// walkTime is how long one folder may be measured, and walkTimeOfAll all folders of one measurement. A container can make millions
	// of files; what is not measured in that time is measured the next time, or is larger than what was counted.
	walkTime, walkTimeOfAll = 5 * time.Second, 20 * time.Second
	// walkShare limits the share of the time that goes into one folder.
	walkShare = 20
)

func newFolderSizes() *folderSizes { return &folderSizes{sizes: map[string]cachedSize{}} }

// of returns the size of a folder with its contents, on the same file system. It is not known if ctx has ended.
func (d *folderSizes) of(ctx context.Context, path string, now time.Time) (_ Size, known bool) {
	d.mu.Lock()
	was, found := d.sizes[path]
	for p, s := range d.sizes {
		if now.Sub(s.at) > 2*s.keep {
			delete(d.sizes, p) // no longer asked for
		}
	}
	d.mu.Unlock()
	if found && now.Sub(was.at) < was.keep || ctx.Err() != nil {
		return was.Size, found
	}
	limit, stop := context.WithTimeout(ctx, walkTime)
	defer stop()
	begin := time.Now()
	size := measure(limit, path)
	d.mu.Lock()
	d.sizes[path] = cachedSize{size, now, max(sizeCacheTime, walkShare*time.Since(begin))}
	d.mu.Unlock()
	return size, true
}

// maxDepth limits the folders that are open at once.
const maxDepth = 1000

// measure adds up the blocks of files until ctx ends. A file with several names counts in parts, which need no memory. Files that are
// removed meanwhile do not count.
func measure(ctx context.Context, root string) Size {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) {
		var st unix.Stat_t
		if unix.Lstat(root, &st) == nil {
			return Size{uint64(st.Blocks) * 512, 1}
		}
	}
	if err != nil {
		return Size{}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Size{}
	}
	w := walk{device: st.Dev}
	w.count(&st)
	w.folder(ctx, fd, 0)
	return Size{uint64(math.Round(w.bytes)), uint64(math.Round(w.inodes))}
}

// walk adds up the files of one file system.
type walk struct {
	device        uint64
	bytes, inodes float64
}

func (w *walk) count(st *unix.Stat_t) {
	names := 1.0
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		names = max(1, float64(st.Nlink))
	}
	w.bytes += float64(st.Blocks) * 512 / names
	w.inodes += 1 / names
}

// folder counts what is in an open folder. It reads the names in parts, as a folder may have millions.
func (w *walk) folder(ctx context.Context, dir, depth int) {
	buf := make([]byte, 16<<10)
	for ctx.Err() == nil && depth < maxDepth {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			return
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Dev != w.device {
				continue
			}
			w.count(&st)
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			if fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
				w.folder(ctx, fd, depth+1)
				_ = unix.Close(fd)
			}
		}
	}
}

// wholePod adds what a Pod uses of disks and of the network. Folders are measured until walks ends.
func (s *Stats) wholePod(ctx, walks context.Context, l pod.Local, out *summary.PodStats, m *measurement) {
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
			if log, known := s.folderSizes.of(walks, filepath.Dir(run.LogPath), now.Time); known {
				c.Logs = withUsage(own, log, now)
				add(log)
			}
		}
	}
	for i := range l.Pod.Spec.Volumes {
		v := &l.Pod.Spec.Volumes[i]
		st, local, found := s.volume(ctx, walks, l.Pod, v, now)
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
		size, _ := s.folderSizes.of(walks, filepath.Join(s.Dir, "pods", string(l.Pod.UID), name), now.Time)
		add(size)
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
func (s *Stats) volume(ctx, walks context.Context, p *corev1.Pod, v *corev1.Volume, now metav1.Time) (st summary.VolumeStats,
	local, found bool) {
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
	size, known := s.folderSizes.of(walks, dir, now.Time)
	st.FsStats = *withUsage(whole, size, now)
	return st, local, known
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
