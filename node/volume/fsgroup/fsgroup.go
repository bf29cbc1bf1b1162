// Package fsgroup changes the group of the files of a volume, so that the processes of a Pod with an fsGroup can use
// them. Containers may change the volume meanwhile: nothing outside it is ever touched, because every step goes from an
// open folder to an entry of it, without following links.
package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

// The permission bits that the group gets.
const (
	readWrite = 0o660
	readOnly  = 0o440
	enter     = 0o110 | unix.S_ISGID
)

// maxDepth limits the folders that are open at once.
const maxDepth = 1000

// Change is a change of a volume's group.
type Change struct {
	Dir   string
	Group int64
	// Policy says whether the whole volume is changed even if its root is right already.
	Policy *corev1.PodFSGroupChangePolicy
	// ReadOnly gives the group no write permission.
	ReadOnly bool
	// Count is how many files have been changed so far.
	Count atomic.Int64
}

// Apply changes the group. Files that cannot be changed are left as they are: a file system may not have owners.
func (g *Change) Apply(ctx context.Context) error {
	fd, err := unix.Open(g.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", g.Dir, g.Group, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("give %s to group %d: %w", g.Dir, g.Group, err)
	}
	if g.Policy != nil && *g.Policy == corev1.FSGroupChangeOnRootMismatch && g.isApplied(&s) {
		return nil
	}
	if err := g.changeContents(ctx, fd, 0); err != nil {
		return fmt.Errorf("give %s to group %d: %w", g.Dir, g.Group, err)
	}
	g.changeFile(fd, &s) // last, so that a root that is right means that everything is
	return nil
}

// isApplied reports whether the root of a volume is as Give leaves it.
func (g *Change) isApplied(s *unix.Stat_t) bool {
	want := g.bits(s.Mode)
	return int64(s.Gid) == g.Group && s.Mode&want == want
}

// bits returns the permission bits that a file gets in addition to its own.
func (g *Change) bits(mode uint32) uint32 {
	bits := uint32(readWrite)
	if g.ReadOnly {
		bits = readOnly
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		bits |= enter
	}
	return bits
}

// changeFile changes one open file. Symbolic links have an owner but no mode.
func (g *Change) changeFile(fd int, s *unix.Stat_t) {
	g.Count.Add(1)
	_ = unix.Fchownat(fd, "", -1, int(g.Group), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	if s.Mode&unix.S_IFMT == unix.S_IFLNK {
		return
	}
	mode := s.Mode&0o7777 | g.bits(s.Mode)
	// The descriptor may be an O_PATH one, and then this is the way that all kernels support.
	_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

func (g *Change) changeContents(ctx context.Context, dir, depth int) error {
	if depth > maxDepth {
		return errors.New("the folders are too deep")
	}
	buf := make([]byte, 16<<10)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.ReadDirent(dir, buf)
		if err != nil {
			return err
		}
		if n <= 0 {
			return nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if err := g.changeEntry(ctx, dir, name, depth); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

func (g *Change) changeEntry(ctx context.Context, dir int, name string, depth int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		in, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		err = g.changeContents(ctx, in, depth+1)
		_ = unix.Close(in)
		if err != nil {
			return err
		}
	}
	g.changeFile(fd, &s)
	return nil
}
