package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDepth limits the folders that are open at once: a container may have made a tree of any depth.
const maxDepth = 100

// Remove removes a folder with its contents. Symbolic links are removed, not followed, and a mount is not entered: it
// is an error, and nothing behind it is touched. Only the agent may be able to write to the folder's parent.
func Remove(dir string) error {
	parent, err := unix.Open(filepath.Dir(dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(parent) }()
	r := remover{}
	if err := r.remove(parent, filepath.Base(dir), 0); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}

type remover struct {
	top   int // the folder to which what is too deep is moved
	moved int
}

func (r *remover) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w", name, err)
	}
	if depth == maxDepth {
		r.moved++
		if err := unix.Renameat(parent, name, r.top, fmt.Sprintf("..deep-%d", r.moved)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	fd, openErr := openHere(parent, name)
	if openErr != nil {
		if errors.Is(openErr, unix.ENOTDIR) {
			return fmt.Errorf("%s: %w", name, err)
		}
		return fmt.Errorf("%s: %w", name, openErr)
	}
	if depth == 0 {
		r.top = fd
	}
	err = r.empty(fd, depth)
	_ = unix.Close(fd)
	if err != nil {
		return fmt.Errorf("%s/%w", name, err)
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// empty removes the contents of a folder. It repeats until nothing is left, because folders that are too deep are moved
// up.
func (r *remover) empty(fd, depth int) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Seek(fd, 0, 0)
		if err != nil || n != 0 {
			return fmt.Errorf("read the folder: %w", err)
		}
		found := 0
		for {
			n, err := unix.ReadDirent(fd, buf)
			if err != nil {
				return fmt.Errorf("read the folder: %w", err)
			}
			if n <= 0 {
				break
			}
			_, _, names := unix.ParseDirent(buf[:n], -1, nil)
			for _, name := range names {
				found++
				if err := r.remove(fd, name, depth+1); err != nil {
					return err
				}
			}
		}
		if found == 0 {
			return nil
		}
	}
}

// openHere opens a folder that is on the same mount as its parent, and no link.
func openHere(parent int, name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	}
	fd, err := unix.Openat2(parent, name, &how)
	if errors.Is(err, unix.EXDEV) {
		return -1, errMounted
	}
	if !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	fd, err = unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if here, there := mountOf(parent), mountOf(fd); here == "" || here != there {
		_ = unix.Close(fd)
		return -1, errMounted
	}
	return fd, nil
}

var errMounted = errors.New("something is mounted there; unmount it first")

// mountOf returns the ID of the mount that an open file is on.
func mountOf(fd int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}
