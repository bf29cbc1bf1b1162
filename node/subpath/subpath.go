// Package subpath mounts a part of a volume for a container, or reads a file of it, and never anything else of the host, whatever the
// container does to the volume meanwhile. The part is opened with a path resolution that the kernel confines to the
// volume; the open file, and not a path, is then bind-mounted at a place that only the agent can write to, and the
// runtime gets that place.
package subpath

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"proa.dev/node/volume/mounts"
)

// CheckPath validates a path into a volume.
func CheckPath(sub string) error {
	if path.IsAbs(sub) {
		return fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
	}
	for name := range strings.SplitSeq(sub, "/") {
		if name == ".." {
			return fmt.Errorf("unable to provision SubPath `%s`: %w", sub, errBack)
		}
	}
	return nil
}

// ErrMake says that a part of a volume does not exist and cannot be made.
var ErrMake = errors.New("the folder cannot be made")

var errBack = errors.New("must not contain '..'")

// Mount mounts a part of a volume at a target. A part that does not exist is created as a folder with the mode of the
// volume. If it is mounted already, the target stays as it is unless the part is another file now.
func Mount(volume, sub, target string) error {
	if err := CheckPath(sub); err != nil {
		return err
	}
	// The volume itself belongs to the agent or the host: only its contents may be hostile.
	resolved, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return fmt.Errorf("find the volume: %w", err)
	}
	base, err := unix.Open(resolved, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the volume %s: %w", resolved, err)
	}
	defer func() { _ = unix.Close(base) }()
	v := openVolume{base, resolved}
	fd, err := v.open(sub)
	if errors.Is(err, unix.ENOENT) {
		if err := v.make(sub); err != nil {
			return fmt.Errorf("%w: %w", ErrMake, err)
		}
		fd, err = v.open(sub)
	}
	if err != nil {
		return fmt.Errorf("open %s in the volume: %w", sub, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return bindAt(fd, target)
}

// openVolume is an open volume.
type openVolume struct {
	fd   int
	path string // without symbolic links
}

// open opens a path, and fails if it leads out of the volume.
func (v openVolume) open(sub string) (int, error) {
	fd, err := openBeneath(v.fd, sub, 0)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// An absolute symbolic link leads out, unless it leads back in; and old kernels cannot confine a path resolution.
	// In both cases the links are resolved first, and the rest of the path must contain none.
	resolved, err := filepath.EvalSymlinks(filepath.Join(v.path, sub))
	if err != nil {
		return -1, err
	}
	if !mounts.Within(resolved, v.path) {
		return -1, errOutside
	}
	rel, err := filepath.Rel(v.path, resolved)
	if err != nil {
		return -1, err
	}
	fd, err = openBeneath(v.fd, rel, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ENOSYS) {
		return walk(v.fd, rel)
	}
	return fd, err
}

var errOutside = errors.New("it leads out of the volume")

// openBeneath opens a path with a resolution that the kernel confines to a folder.
func openBeneath(dir int, sub string, resolve uint64) (int, error) {
	if sub == "" {
		sub = "."
	}
	// Opening it as a folder triggers automounts; only then other types are tried.
	for _, flag := range []uint64{unix.O_DIRECTORY, 0} {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flag,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve}
		for range 100 { // the kernel gives up when folders are moved meanwhile
			fd, err := unix.Openat2(dir, sub, &how)
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			if errors.Is(err, unix.ENOTDIR) && flag != 0 {
				break
			}
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// walk opens a path without symbolic links, name by name.
func walk(dir int, sub string) (int, error) {
	at, err := unix.Openat(dir, ".", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(path.Clean(sub), "/") {
		if name == ".." {
			_ = unix.Close(at)
			return -1, errOutside
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		var s unix.Stat_t
		if err := unix.Fstat(next, &s); err != nil || s.Mode&unix.S_IFMT == unix.S_IFLNK {
			_ = unix.Close(next)
			return -1, errors.Join(err, errOutside)
		}
		at = next
	}
	return at, nil
}

// make creates the missing folders of a path, with the mode of the volume.
func (v openVolume) make(sub string) error {
	var s unix.Stat_t
	if err := unix.Fstat(v.fd, &s); err != nil {
		return fmt.Errorf("read the mode of the volume: %w", err)
	}
	above := "."
	for name := range strings.SplitSeq(path.Clean(sub), "/") {
		here := path.Join(above, name)
		fd, err := v.open(here)
		switch {
		case err == nil:
			_ = unix.Close(fd)
		case errors.Is(err, unix.ENOENT):
			if err := v.mkdir(above, name, s.Mode&0o7777); err != nil {
				return fmt.Errorf("make %s in the volume: %w", here, err)
			}
		default:
			return fmt.Errorf("open %s in the volume: %w", here, err)
		}
		above = here
	}
	return nil
}

func (v openVolume) mkdir(above, name string, mode uint32) error {
	parent, err := v.open(above)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(parent) }()
	if err := unix.Mkdirat(parent, name, mode&0o777); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil // it was created meanwhile, or is a dangling link: the next step tells
		}
		return err
	}
	made, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(made) }()
	return unix.Fchmod(made, mode)
}

// bindAt bind-mounts an open file at a target.
func bindAt(fd int, target string) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("look at what is to be mounted: %w", err)
	}
	there, err := mounts.IsMountPoint(target)
	if err != nil {
		return err
	}
	if there {
		var t unix.Stat_t
		if err := unix.Lstat(target, &t); err == nil && t.Dev == s.Dev && t.Ino == s.Ino {
			return nil
		}
		// The part is another file now, or the mount is broken. Running containers keep what they have.
		if err := mounts.Detach(target); err != nil {
			return err
		}
	}
	if err := makeMountPoint(target, s.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return mounts.Bind(fmt.Sprintf("/proc/self/fd/%d", fd), target, mounts.ReadWrite)
}

// makeMountPoint creates the mount point: a folder for folders, a file for everything else.
func makeMountPoint(target string, folder bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if info, err := os.Lstat(target); err == nil && info.IsDir() != folder {
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if folder {
		if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
