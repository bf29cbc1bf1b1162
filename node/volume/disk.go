package volume

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"proa.dev/node/event"
	"proa.dev/node/volume/fsgroup"
	"proa.dev/node/volume/hostpath"
	"proa.dev/node/volume/mounts"
)

// extraGroup parses the group that a volume asks for; it is false if that is no number or the Pod has the group anyway.
func extraGroup(p *corev1.Pod, text string) (int64, bool) {
	gid, err := strconv.ParseInt(text, 10, 64)
	if err != nil || p.Spec.SecurityContext != nil && slices.Contains(p.Spec.SecurityContext.SupplementalGroups, gid) {
		return 0, false
	}
	return gid, true
}

// mountNFS mounts a directory of an NFS server.
func (v *Volumes) mountNFS(ctx context.Context, p *corev1.Pod, name string, s *corev1.NFSVolumeSource, readOnly bool,
	options []string) (*mounted, error) {
	dir := v.volumeDir(p.UID, pluginNFS, name)
	m := &mounted{path: dir, readOnly: readOnly}
	is, err := mounts.IsMountPoint(dir)
	if is || err != nil {
		return m, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	server := s.Server
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		server = "[" + server + "]"
	}
	if readOnly {
		options = append(options, "ro")
	}
	if err := mounts.MountByProgram(ctx, server+":"+s.Path, dir, "nfs", options); err != nil {
		return nil, errors.Join(err, mounts.UnmountAll(dir), os.Remove(dir))
	}
	return m, nil
}

// mountLocal mounts a local volume: a folder or a disk of this node.
func (v *Volumes) mountLocal(ctx context.Context, p *corev1.Pod, b *bound) (*mounted, error) {
	name, path := b.pv.Name, b.pv.Spec.Local.Path
	if path == "" {
		return nil, fmt.Errorf("LocalVolume volume %q path is empty", name)
	}
	if err := hostpath.CheckNoBacksteps(path); err != nil {
		return nil, fmt.Errorf("invalid path: %s %w", path, err)
	}
	dir := v.volumeDir(p.UID, pluginLocal, name)
	m := &mounted{path: dir, readOnly: b.readOnly, relabel: !b.readOnly}
	is, err := mounts.IsMountPoint(dir)
	if is || err != nil {
		return m, err
	}
	if path, err = v.localSource(b.pv); err != nil {
		return nil, &operationError{"MountVolume.MountDevice failed", err}
	}
	kind, err := hostpath.TypeOf(path)
	if err != nil {
		return nil, &operationError{"MountVolume.MountDevice failed", err}
	}
	switch kind {
	case corev1.HostPathDirectory:
	case corev1.HostPathBlockDev:
		if path, err = v.localDisk(ctx, b); err != nil {
			return nil, &operationError{"MountVolume.MountDevice failed", err}
		}
	default:
		return nil, &operationError{"MountVolume.MountDevice failed", errors.New("only directory and block device are supported")}
	}
	shared, err := v.isShared(p, name, path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	access := mounts.ReadWrite
	if b.readOnly {
		access = mounts.ReadOnly
	}
	if err := mounts.Bind(path, dir, access, b.options()...); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	if b.readOnly || shared {
		return m, nil
	}
	if err := v.applyFSGroup(ctx, p, dir); err != nil {
		return nil, errors.Join(err, mounts.UnmountAll(dir))
	}
	return m, nil
}

// isShared reports whether another Pod uses a folder already; then its fsGroup is not changed, and an Event says so.
func (v *Volumes) isShared(p *corev1.Pod, name, path string) (bool, error) {
	table, err := mounts.Table()
	if err != nil {
		return false, err
	}
	pods := filepath.Join(v.Dir, "pods")
	if !slices.ContainsFunc(mounts.OtherMountPoints(table, path), func(at string) bool { return mounts.Within(at, pods) }) {
		return false, nil
	}
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return true, fmt.Errorf("failed to check fsGroup for %s (%w)", path, err)
	}
	if g := fsGroup(p); g != nil && int64(s.Gid) != *g {
		v.Events.Event(event.Pod(p), corev1.EventTypeWarning, "AlreadyMountedVolume",
			"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *g, name, s.Gid)
	}
	return true, nil
}

// When an Event says that changing the group of a volume takes long, and how often after that.
const (
	slowAfter = 30 * time.Second
	slowEvery = time.Minute
)

// applyFSGroup applies the fsGroup of a Pod, if it has one, to a volume, and records Events when that takes long.
func (v *Volumes) applyFSGroup(ctx context.Context, p *corev1.Pod, dir string) error {
	g := fsGroup(p)
	if g == nil {
		return nil
	}
	gift := fsgroup.Change{Dir: dir, Group: *g, Policy: p.Spec.SecurityContext.FSGroupChangePolicy}
	shown := dir
	if at := strings.Index(dir, string(p.UID)); at >= 0 {
		shown = dir[at:]
	}
	done := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() { v.reportSlow(p, shown, &gift, done) })
	err := gift.Apply(ctx)
	close(done)
	teller.Wait()
	return err
}

// reportSlow records Events about a change of the group that takes long, until done is closed.
func (v *Volumes) reportSlow(p *corev1.Pod, shown string, gift *fsgroup.Change, done chan struct{}) {
	const slow = "VolumePermissionChangeInProgress"
	select {
	case <-done:
		return
	case <-time.After(slowAfter):
	}
	v.Events.Event(event.Pod(p), corev1.EventTypeWarning, slow, "Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - "+
		"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods", shown)
	for {
		select {
		case <-done:
			return
		case <-time.After(slowEvery):
		}
		v.Events.Event(event.Pod(p), corev1.EventTypeWarning, slow, "Setting volume ownership for %s, processed %d files.", shown,
			gift.Count.Load())
	}
}

// localDevice provides a disk of this node to containers as a block device.
func (v *Volumes) localDevice(p *corev1.Pod, name, path string, readOnly bool) (*mounted, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, &operationError{"MapVolume.EvalHostSymlinks failed", err}
	}
	if kind, err := hostpath.TypeOf(resolved); err != nil || kind != corev1.HostPathBlockDev {
		return nil, &operationError{"MapVolume.MapPodDevice failed", errors.Join(err, fmt.Errorf("%s is not a block device", path))}
	}
	link, err := v.linkDevice(p, pluginLocal, name, resolved)
	if err != nil {
		return nil, &operationError{"MapVolume.MapBlockVolume failed", err}
	}
	return &mounted{device: link, readOnly: readOnly}, nil
}

// linkDevice records on disk that a Pod has a device: pods/<uid>/volumeDevices/<plugin>/<name>.
func (v *Volumes) linkDevice(p *corev1.Pod, plugin, name, device string) (string, error) {
	link := filepath.Join(v.Dir, "pods", string(p.UID), "volumeDevices", escapePluginName(plugin), name)
	if to, err := os.Readlink(link); err == nil && to == device {
		return link, nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return "", err
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return link, os.Symlink(device, link)
}

// diskDir returns where a disk of this node is mounted for all its Pods.
func (v *Volumes) diskDir(name string) string {
	return filepath.Join(v.Dir, "plugins", "kubernetes.io", "local-volume", "mounts", name)
}

// localDisk mounts a disk of this node, with a new file system if it has none.
func (v *Volumes) localDisk(ctx context.Context, b *bound) (string, error) {
	dir, device := v.diskDir(b.pv.Name), b.pv.Spec.Local.Path
	is, err := mounts.IsMountPoint(dir)
	if is || err != nil {
		return dir, err
	}
	fsType := "ext4"
	if b.pv.Spec.Local.FSType != nil && *b.pv.Spec.Local.FSType != "" {
		fsType = *b.pv.Spec.Local.FSType
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	options := b.options()
	if b.readOnly {
		options = append(options, "ro")
	}
	if err := formatDisk(ctx, device, fsType, b.readOnly); err != nil {
		return "", fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", device, dir, fsType, err)
	}
	if err := mounts.MountByProgram(ctx, device, dir, fsType, append(options, "defaults")); err != nil {
		return "", fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", device, dir, fsType,
			errors.Join(err, os.Remove(dir)))
	}
	return dir, nil
}

// formatDisk makes a file system on an empty disk, and checks an existing one. A disk with unknown contents is never
// overwritten.
func formatDisk(ctx context.Context, device, fsType string, readOnly bool) error {
	//nolint:gosec // G204: the device is one that a volume names
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device).Output()
	failed, ran := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && (!ran || failed.ExitCode() != 2): // 2: nothing was found
		return fmt.Errorf("look at what is on %s: %w", device, err)
	case err == nil && len(strings.TrimSpace(string(out))) > 0:
		if readOnly {
			return nil
		}
		out, err := exec.CommandContext(ctx, "fsck", "-a", //nolint:gosec // G204: the device is one that a volume names
			device).CombinedOutput()
		if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 4 {
			return fmt.Errorf("'fsck' found errors on device %s but could not correct them: %s", device, out)
		}
		return nil
	case readOnly:
		return fmt.Errorf("cannot mount unformatted disk %s as it is read-only", device)
	}
	args := []string{device}
	if fsType == "ext4" || fsType == "ext3" {
		args = []string{"-F", "-m0", device}
	}
	if out, err := exec.CommandContext(ctx, "mkfs."+fsType, //nolint:gosec // G204: whoever makes volumes names the file system
		args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format %s: %w: %s", device, err, out)
	}
	return nil
}
