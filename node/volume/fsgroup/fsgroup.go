// Package fsgroup gives the files of a volume to a group, so that the processes of a Pod with an fsGroup can use them. Containers
// may change the volume meanwhile: nothing outside it is ever touched, because every step goes from an open folder to what is
// in it, without following links.
package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"
)

// The bits that a group gets.
const (
	readWrite = 0o660
	readOnly  = 0o440
	enter     = 0o110 | unix.S_ISGID
)

// maxDepth bounds the folders that are open at once.
const maxDepth = 1000

// Gift is a volume and whom it is given to.
type Gift struct {
	Dir   string
	Group int64
	// Policy says whether all of the volume is looked at even if its top is right already.
	Policy *corev1.PodFSGroupChangePolicy
	// ReadOnly gives the group no right to write.
	ReadOnly bool
	// Count is how many files have been looked at so far.
	Count atomic.Int64
}

// Give does it. Files that cannot be changed are left as they are: a file system may not have owners.
func (g *Gift) Give(ctx context.Context) error {
	fd, err := unix.Open(g.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", g.Dir, g.Group, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return fmt.Errorf("give %s to group %d: %w", g.Dir, g.Group, err)
	}
	if g.Policy != nil && *g.Policy == corev1.FSGroupChangeOnRootMismatch && g.right(&s) {
		return nil
	}
	if err := g.inside(ctx, fd, 0); err != nil {
		return fmt.Errorf("give %s to group %d: %w", g.Dir, g.Group, err)
	}
	g.change(fd, &s) // last, so that a top that is right says that all of it is
	return nil
}

// right says that the top of a volume is as Give leaves it.
func (g *Gift) right(s *unix.Stat_t) bool {
	want := g.bits(s.Mode)
	return int64(s.Gid) == g.Group && s.Mode&want == want
}

// bits are those that a file gets in addition to its own.
func (g *Gift) bits(mode uint32) uint32 {
	bits := uint32(readWrite)
	if g.ReadOnly {
		bits = readOnly
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		bits |= enter
	}
	return bits
}

// change gives away one file that is open. Links have an owner but no mode.
func (g *Gift) change(fd int, s *unix.Stat_t) {
	g.Count.Add(1)
	_ = unix.Fchownat(fd, "", -1, int(g.Group), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	if s.Mode&unix.S_IFMT == unix.S_IFLNK {
		return
	}
	mode := s.Mode&0o7777 | g.bits(s.Mode)
	// The descriptor may be one that only names the file, and then this is the way to it that all kernels know.
	_ = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

func (g *Gift) inside(ctx context.Context, dir, depth int) error {
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
			if err := g.entry(ctx, dir, name, depth); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

func (g *Gift) entry(ctx context.Context, dir int, name string, depth int) error {
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
		err = g.inside(ctx, in, depth+1)
		_ = unix.Close(in)
		if err != nil {
			return err
		}
	}
	g.change(fd, &s)
	return nil
}
