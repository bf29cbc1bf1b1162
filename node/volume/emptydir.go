package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"golang.org/x/sys/unix"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/volume/fsgroup"
	"proa.dev/node/volume/mounts"
)

// mountEmptyDir makes a folder that lives as long as its Pod. Once it is ready it belongs to the containers: neither its
// mode nor its group is set again.
func (v *Volumes) mountEmptyDir(ctx context.Context, p *corev1.Pod, name string, s *corev1.EmptyDirVolumeSource) (*mounted, error) {
	dir := v.volumeDir(p.UID, pluginEmptyDir, name)
	m := &mounted{path: dir, relabel: true}
	is, err := mounts.IsMountPoint(dir)
	if err != nil {
		return nil, err
	}
	ready := v.isReady(p.UID, name)
	if ready && s.Medium == corev1.StorageMediumDefault {
		if _, err := os.Lstat(dir); err == nil {
			return m, nil
		}
	}
	if ready && is && s.Medium != corev1.StorageMediumDefault {
		if s.Medium == corev1.StorageMediumMemory {
			v.resizeTmpfs(dir, memorySize(p, s.SizeLimit, v.Allocatable()))
			m.live = true // its size follows the limits of the Pod
		}
		return m, nil
	}
	switch {
	case s.Medium == corev1.StorageMediumDefault:
		err = makeFolder(dir)
	case s.Medium == corev1.StorageMediumMemory:
		m.live = true
		err = mountTmpfs(dir, memorySize(p, s.SizeLimit, v.Allocatable()))
	case s.Medium == corev1.StorageMediumHugePages, strings.HasPrefix(string(s.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		err = mountHugePages(dir, p, s.Medium)
	default:
		err = fmt.Errorf("unknown storage medium %q", s.Medium)
	}
	if err != nil {
		return nil, err
	}
	if g := fsGroup(p); g != nil {
		gift := fsgroup.Change{Dir: dir, Group: *g}
		_ = gift.Apply(ctx)
	}
	return m, v.setReady(p.UID, name)
}

// fsGroup returns the fsGroup of a Pod.
func fsGroup(p *corev1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// readyFile returns the file whose existence records, across restarts, that a volume was set up completely.
func (v *Volumes) readyFile(uid types.UID, name string) string {
	return filepath.Join(v.Dir, "pods", string(uid), "plugins", escapePluginName(pluginEmptyDir), name, "ready")
}

func (v *Volumes) isReady(uid types.UID, name string) bool {
	_, err := os.Lstat(v.readyFile(uid, name))
	return err == nil
}

func (v *Volumes) setReady(uid types.UID, name string) error {
	file := v.readyFile(uid, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}

// makeFolder makes a folder that everybody may use, whatever the umask.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // G301: it is for the processes of the Pod, whoever they are
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm() != 0o777 {
		return os.Chmod(dir, 0o777) //nolint:gosec // G302: it is for the processes of the Pod, whoever they are
	}
	return nil
}

// mountTmpfs mounts a tmpfs at a folder, unless it is mounted already.
func mountTmpfs(dir string, size int64) error {
	is, err := mounts.IsMountPoint(dir)
	if is || err != nil {
		return err
	}
	if err := makeFolder(dir); err != nil {
		return err
	}
	return mounts.Tmpfs(dir, size)
}

// resizeTmpfs resizes a tmpfs when the limits of the Pod have changed. If it holds more than the new size, it stays as it is.
func (v *Volumes) resizeTmpfs(dir string, size int64) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || size <= 0 || s.Bsize <= 0 {
		return
	}
	pages := (size + s.Bsize - 1) / s.Bsize
	if s.Blocks > math.MaxInt64 || int64(s.Blocks) == pages {
		return
	}
	if err := mounts.Resize(dir, size); err != nil {
		v.Log.Warn("a tmpfs volume cannot be resized", "dir", dir, "err", err)
	}
}

// memorySize returns the size of a tmpfs volume: the smallest of its own limit, the memory limit of the Pod, and the
// allocatable memory of the node.
func memorySize(p *corev1.Pod, own *resource.Quantity, allocatable corev1.ResourceList) int64 {
	size := allocatable.Memory().Value()
	smaller := func(q int64) {
		if q > 0 && (q <= size || size <= 0) {
			size = q
		}
	}
	if limit, ok := memoryLimit(p); ok {
		smaller(limit)
	}
	if own != nil {
		smaller(quantity.Value(own))
	}
	return max(size, 0)
}

// memoryLimit returns the memory limit of a Pod; there is one if the Pod or each of its containers has one.
func memoryLimit(p *corev1.Pod) (int64, bool) {
	declared := true
	for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range all {
			declared = declared && !all[i].Resources.Limits.Memory().IsZero()
		}
	}
	if p.Spec.Resources != nil && !p.Spec.Resources.Limits.Memory().IsZero() {
		declared = true
	}
	if !declared {
		return 0, false
	}
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	return quantity.Value(limits.Memory()), true
}

// mountHugePages mounts a hugetlbfs at a folder, unless it is mounted already.
func mountHugePages(dir string, p *corev1.Pod, medium corev1.StorageMedium) error {
	size, err := pageSize(p, medium)
	if err != nil {
		return err
	}
	is, err := mounts.IsMountPoint(dir)
	if is || err != nil {
		return err
	}
	if err := makeFolder(dir); err != nil {
		return err
	}
	return mounts.HugePages(dir, size)
}

// pageSize returns the page size of a volume: that of its medium, or the only one that the containers request.
func pageSize(p *corev1.Pod, medium corev1.StorageMedium) (string, error) {
	wanted := resource.Quantity{}
	if text, ok := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix)); ok {
		var err error
		if wanted, err = quantity.Parse(text); err != nil {
			return "", fmt.Errorf("medium %s: %w", medium, err)
		}
	}
	var lists []corev1.ResourceList
	if p.Spec.Resources != nil {
		lists = append(lists, p.Spec.Resources.Requests)
	}
	for _, all := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range all {
			lists = append(lists, all[i].Resources.Requests)
		}
	}
	var found *resource.Quantity
	for _, list := range lists {
		for name := range list {
			text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			size, err := quantity.Parse(text)
			if err != nil {
				return "", fmt.Errorf("resource %s: %w", name, err)
			}
			switch {
			case medium != corev1.StorageMediumHugePages:
				if size.Cmp(wanted) == 0 {
					found = &size
				}
			case found != nil && found.Cmp(size) != 0:
				return "", fmt.Errorf("medium: %s can't be used if container requests multiple huge page sizes", medium)
			default:
				found = &size
			}
		}
	}
	if found == nil {
		return "", fmt.Errorf("medium %s: hugePages storage requested, but there is no resource request for huge pages", medium)
	}
	return found.String(), nil
}

// exists reports whether a path exists; symbolic links are followed.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
