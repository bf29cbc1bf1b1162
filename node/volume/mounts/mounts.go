// Package mounts mounts and unmounts file systems, and removes folders that may contain mounts. It never follows a
// symbolic link that a container may have planted, and never removes anything through a mount: what a volume shows is
// not the volume's to delete.
package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// IsMountPoint reports whether a folder or file is a mount point. A path that does not exist is none.
func IsMountPoint(path string) (bool, error) {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &s)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err == nil && s.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	// The kernel is old, or the mount is broken: the mount table knows.
	table, err := Table()
	if err != nil {
		return false, err
	}
	for _, m := range table {
		if m.Point == path {
			return true, nil
		}
	}
	return false, nil
}

// Tmpfs mounts a tmpfs at a folder, with a size in bytes; 0 leaves the size to the kernel. It is not swapped out if the
// kernel supports that, because it holds Secrets.
func Tmpfs(dir string, size int64) error {
	options := ""
	if size > 0 {
		options = "size=" + strconv.FormatInt(size, 10)
	}
	quiet := strings.TrimPrefix(options+",noswap", ",")
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, quiet)
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	}
	if err != nil {
		return fmt.Errorf("mount memory at %s: %w", dir, err)
	}
	return nil
}

// Resize resizes a tmpfs.
func Resize(dir string, size int64) error {
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size="+strconv.FormatInt(size, 10)); err != nil {
		return fmt.Errorf("resize the memory at %s: %w", dir, err)
	}
	return nil
}

// HugePages mounts a hugetlbfs with pages of a size, such as 2Mi, at a folder.
func HugePages(dir, pageSize string) error {
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, "pagesize="+pageSize); err != nil {
		return fmt.Errorf("mount huge pages of %s at %s: %w", pageSize, dir, err)
	}
	return nil
}

// Access says what may be done through a mount.
type Access int

// The kinds of access.
const (
	ReadWrite Access = iota
	ReadOnly
)

// Bind bind-mounts a folder or file at another path, without the mounts below it. Options such as noexec apply to the
// new mount; options of file systems are ignored.
func Bind(from, to string, a Access, options ...string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	var extra uintptr
	for _, o := range options {
		extra |= flagOf(o)
	}
	if a == ReadOnly {
		extra |= unix.MS_RDONLY
	}
	if extra == 0 {
		return nil
	}
	var s unix.Statfs_t
	if unix.Statfs(to, &s) == nil {
		// Restrictions of the file system must be repeated, otherwise the kernel refuses.
		extra |= uintptr(s.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME |
			unix.MS_NODIRATIME | unix.MS_RELATIME)
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|extra, ""); err != nil {
		return errors.Join(fmt.Errorf("restrict %s: %w", to, err), Unmount(to))
	}
	return nil
}

func flagOf(option string) uintptr {
	switch option {
	case "ro":
		return unix.MS_RDONLY
	case "noexec":
		return unix.MS_NOEXEC
	case "nosuid":
		return unix.MS_NOSUID
	case "nodev":
		return unix.MS_NODEV
	case "noatime":
		return unix.MS_NOATIME
	case "nodiratime":
		return unix.MS_NODIRATIME
	case "relatime":
		return unix.MS_RELATIME
	}
	return 0
}

// MountByProgram mounts by the mount program of the host, which knows the helpers of file systems such as NFS. The error has
// the output of the program.
func MountByProgram(ctx context.Context, source, dir, fsType string, options []string) error {
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	// "--" keeps a source that begins with a dash from being taken for an option.
	out, err := exec.CommandContext(ctx, "mount", //nolint:gosec // G204: no shell, and "--" ends the options
		append(slices.Clone(args), "--", source, dir)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", err, strings.Join(append(args, source, dir), " "), out)
	}
	return nil
}

// Unmount unmounts the topmost mount at a path.
func Unmount(path string) error {
	var err error
	for try := range 5 {
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil // there is none
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(time.Duration(try+1) * 20 * time.Millisecond)
	}
	return fmt.Errorf("unmount %s: %w", path, err)
}

// Detach detaches a mount even while it is in use; it ends with its last user.
func Detach(path string) error {
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach %s: %w", path, err)
	}
	return nil
}

// UnmountAll unmounts every mount at a folder and below it.
func UnmountAll(dir string) error {
	dir = filepath.Clean(dir)
	for range 3 { // a container may still mount something while it ends
		table, err := Table()
		if err != nil {
			return err
		}
		under := Under(table, dir)
		if len(under) == 0 {
			return nil
		}
		var errs []error
		for _, m := range under {
			if err := clearOne(m); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	return fmt.Errorf("something keeps mounting below %s", dir)
}

func clearOne(m Mount) error {
	if strings.HasPrefix(m.Type, "nfs") {
		// The server may be away, and then an ordinary unmount blocks for ever.
		_ = unix.Unmount(m.Point, unix.UMOUNT_NOFOLLOW|unix.MNT_FORCE)
		return Detach(m.Point)
	}
	err := Unmount(m.Point)
	if errors.Is(err, unix.EBUSY) && m.Type == "tmpfs" {
		return Detach(m.Point) // its contents are discarded, whoever still uses them
	}
	return err
}

// Share makes a folder a shared mount, unless it is on one already. Mounts with propagation need that.
func Share(dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("share the mounts of %s: %w", dir, err)
	}
	table, err := Table()
	if err != nil {
		return err
	}
	at, ok := HoldingMount(table, resolved)
	if ok && at.Shared {
		return nil
	}
	if at.Point != resolved {
		if err := unix.Mount(resolved, resolved, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("share the mounts of %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", resolved, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts of %s: %w", dir, err)
	}
	return nil
}

// Unshare unmounts what Share has mounted, with every mount below it.
func Unshare(dir string) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return UnmountAll(resolved)
}
