// Package subpath shows a container a part of a volume, and never anything else of the host, whatever the container does to
// the volume meanwhile. The part is opened by a walk that the kernel keeps inside the volume; what was opened, and no name, is
// then mounted at a place that only we can write to, and that place is what the runtime gets.
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

// Check says what is wrong with a path into a volume.
func Check(sub string) error {
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

// ErrMake says that a part of a volume is not there and cannot be made.
var ErrMake = errors.New("the folder cannot be made")

var errBack = errors.New("must not contain '..'")

// Mount shows a part of a volume at a target. A part that is not there becomes a folder with the mode of the volume. Mounted
// again, the target stays as it is unless the part has become another file.
func Mount(volume, sub, target string) error {
	if err := Check(sub); err != nil {
		return err
	}
	// The volume is ours or the host's: only what is in it may be hostile.
	real, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return fmt.Errorf("find the volume: %w", err)
	}
	base, err := unix.Open(real, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the volume %s: %w", real, err)
	}
	defer func() { _ = unix.Close(base) }()
	v := opened{base, real}
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
	return show(fd, target)
}

// opened is a volume while something is looked for in it.
type opened struct {
	fd   int
	path string // without links
}

// open finds what a path names, and fails if that is outside of the volume.
func (v opened) open(sub string) (int, error) {
	fd, err := beneath(v.fd, sub, 0)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	// A link with an absolute path leads out, unless the path leads back in; and old kernels cannot keep a walk inside. Both
	// ways the links are resolved first, and none may turn up in what is left of the path.
	real, err := filepath.EvalSymlinks(filepath.Join(v.path, sub))
	if err != nil {
		return -1, err
	}
	if !mounts.Within(real, v.path) {
		return -1, errOutside
	}
	rel, err := filepath.Rel(v.path, real)
	if err != nil {
		return -1, err
	}
	fd, err = beneath(v.fd, rel, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ENOSYS) {
		return walk(v.fd, rel)
	}
	return fd, err
}

var errOutside = errors.New("it leads out of the volume")

// beneath opens a path by a walk that the kernel keeps below a folder.
func beneath(dir int, sub string, resolve uint64) (int, error) {
	if sub == "" {
		sub = "."
	}
	// Opening it as a folder makes what mounts itself on demand do so; only then it is tried as anything.
	for _, flag := range []uint64{unix.O_DIRECTORY, 0} {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flag, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve}
		for range 100 { // the kernel gives up when folders are moved under it
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

// walk opens a path without links, name by name.
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

// make makes the folders of a path that are not there, with the mode of the volume.
func (v opened) make(sub string) error {
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

func (v opened) mkdir(above, name string, mode uint32) error {
	parent, err := v.open(above)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(parent) }()
	if err := unix.Mkdirat(parent, name, mode&0o777); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil // somebody else made it, or it is a link to nowhere: the next step tells
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

// show mounts what is open at a target.
func show(fd int, target string) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("look at what is to be mounted: %w", err)
	}
	there, err := mounts.Is(target)
	if err != nil {
		return err
	}
	if there {
		var t unix.Stat_t
		if err := unix.Lstat(target, &t); err == nil && t.Dev == s.Dev && t.Ino == s.Ino {
			return nil
		}
		// The part is another file now, or what was mounted is broken. Running containers keep what they have.
		if err := mounts.Detach(target); err != nil {
			return err
		}
	}
	if err := place(target, s.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return mounts.Bind(fmt.Sprintf("/proc/self/fd/%d", fd), target, mounts.ReadWrite)
}

// place makes what can be mounted on: folders on folders, everything else on files.
func place(target string, folder bool) error {
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
