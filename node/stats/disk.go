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

// full is how full the filesystem of a folder is; nil when there is none.
func full(path string) *summary.FsStats {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return nil
	}
	unit := uint64(st.Bsize)
	return &summary.FsStats{
		Time: metav1.Now(), AvailableBytes: new(st.Bavail * unit), CapacityBytes: new(st.Blocks * unit), UsedBytes: new((st.Blocks - st.Bfree) * unit),
		InodesFree: new(st.Ffree), Inodes: new(st.Files), InodesUsed: new(st.Files - st.Ffree),
	}
}

// disks remembers the sizes of folders for a while: to add them up takes time.
type disks struct {
	mu    sync.Mutex // guards sizes
	sizes map[string]sized
}

type sized struct {
	Size
	at time.Time
}

// sizedFor is how long a size counts; it is what upstream waits between two looks at a volume.
const sizedFor = time.Minute

func newDisks() *disks { return &disks{sizes: map[string]sized{}} }

// of is the size of a folder with all that is in it, on the same filesystem.
func (d *disks) of(ctx context.Context, path string, now time.Time) Size {
	d.mu.Lock()
	was, found := d.sizes[path]
	for p, s := range d.sizes {
		if now.Sub(s.at) > 2*sizedFor {
			delete(d.sizes, p) // nobody asks about it any more
		}
	}
	d.mu.Unlock()
	if found && now.Sub(was.at) < sizedFor {
		return was.Size
	}
	size := measure(ctx, path)
	d.mu.Lock()
	d.sizes[path] = sized{size, now}
	d.mu.Unlock()
	return size
}

// measure adds up the blocks of files, each file once. What vanishes meanwhile does not count.
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
			return nil //nolint:nilerr // it is gone
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
func (s *Stats) wholePod(ctx context.Context, l pod.Local, out *summary.PodStats, layers map[string]Size, writable *summary.FsStats) {
	now := metav1.Now()
	out.Network = s.spaces.of(ctx, &l.Facts.Sandboxes[0], now)
	own := full(s.Dir)
	var sum Size
	add := func(z Size) { sum.Bytes, sum.Inodes = sum.Bytes+z.Bytes, sum.Inodes+z.Inodes }
	for i := range out.Containers {
		c := &out.Containers[i]
		run, found := l.Facts.Of(c.Name)
		if !found {
			continue
		}
		layer := layers[run.ID]
		c.Rootfs = used(writable, layer, now)
		add(layer)
		if run.LogPath != "" {
			log := s.disks.of(ctx, filepath.Dir(run.LogPath), now.Time)
			c.Logs = used(own, log, now)
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
	// What the node gives to containers to write to: their names for others, and their last words.
	for _, name := range []string{"etc-hosts", "containers"} {
		add(s.disks.of(ctx, filepath.Join(s.Dir, "pods", string(l.Pod.UID), name), now.Time))
	}
	out.EphemeralStorage = used(own, sum, now)
}

// used is a filesystem of which something takes a part.
func used(of *summary.FsStats, z Size, now metav1.Time) *summary.FsStats {
	out := &summary.FsStats{Time: now, UsedBytes: &z.Bytes, InodesUsed: &z.Inodes}
	if of != nil {
		out.AvailableBytes, out.CapacityBytes, out.InodesFree, out.Inodes = of.AvailableBytes, of.CapacityBytes, of.InodesFree, of.Inodes
	}
	return out
}

// volume is what a volume holds. Those that live in the Pod's own folder are a part of its storage, unless they are in memory.
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
		st, found := s.claimed(ctx, p, st)
		return st, false, found
	}
	dir := filepath.Join(s.Dir, "pods", string(p.UID), "volumes", "kubernetes.io~"+plugin, v.Name)
	fs := full(dir)
	if fs == nil {
		return st, false, false
	}
	st.FsStats = *used(fs, s.disks.of(ctx, dir, now.Time), now)
	return st, local, true
}

// claimed is the volume of a claim: a filesystem of its own, or a folder of a larger one, which is told as it is. Where it is
// mounted depends on who mounted it.
func (s *Stats) claimed(ctx context.Context, p *corev1.Pod, st summary.VolumeStats) (_ summary.VolumeStats, found bool) {
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
			if f := full(at); f != nil {
				st.FsStats = *f
				return st, true
			}
		}
	}
	return st, false
}
