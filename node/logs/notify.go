package logs

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"proa.dev/internal/wait"
)

// Notify reports changes in folders by inotify. All readers of a node share one, because the kernel limits their
// number.
type Notify struct {
	file *os.File
	raw  syscall.RawConn

	mu   sync.Mutex // guards what follows
	dirs map[int32]map[wait.Signal]bool
}

// NewNotify opens an inotify instance; Run delivers its events, and closes it.
func NewNotify() (*Notify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files: %w (fs.inotify.max_user_instances bounds how many may)", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("watch files: %w", err)
	}
	return &Notify{file: f, raw: raw, dirs: map[int32]map[wait.Signal]bool{}}, nil
}

// Run delivers events until ctx ends.
func (n *Notify) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = n.file.Close() })
	defer stop()
	buf := make([]byte, 16<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			_ = n.file.Close()
			return
		}
		n.mu.Lock()
		for wd, mask := range events(buf[:size]) {
			if mask&unix.IN_Q_OVERFLOW != 0 {
				for wd := range n.dirs {
					n.signal(wd)
				}
			}
			n.signal(wd)
			if mask&unix.IN_IGNORED != 0 { // the folder was removed
				delete(n.dirs, wd)
			}
		}
		n.mu.Unlock()
	}
}

// events yields the folders and kinds of the events in a buffer of the kernel.
func events(buf []byte) func(yield func(int32, uint32) bool) {
	return func(yield func(int32, uint32) bool) {
		for len(buf) >= unix.SizeofInotifyEvent {
			wd, mask := int32(binary.NativeEndian.Uint32(buf)), binary.NativeEndian.Uint32(buf[4:])
			size := uint64(unix.SizeofInotifyEvent) + uint64(binary.NativeEndian.Uint32(buf[12:]))
			if !yield(wd, mask) || size > uint64(len(buf)) {
				return
			}
			buf = buf[size:]
		}
	}
}

func (n *Notify) signal(wd int32) {
	for s := range n.dirs[wd] {
		s.Send()
	}
}

// watch returns a channel that is signalled when files of a folder have changed.
func (n *Notify) watch(dir string) (<-chan struct{}, func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var got int
	var err error
	if e := n.raw.Control(func(fd uintptr) {
		got, err = unix.InotifyAddWatch(int(fd), dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE)
	}); e != nil {
		err = e
	}
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	wd, s := int32(got), wait.NewSignal()
	if n.dirs[wd] == nil {
		n.dirs[wd] = map[wait.Signal]bool{}
	}
	n.dirs[wd][s] = true
	return s, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		all := n.dirs[wd]
		if !all[s] {
			return
		}
		if delete(all, s); len(all) == 0 {
			delete(n.dirs, wd)
			// The watch may have been removed with its folder, or with the instance.
			_ = n.raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
		}
	}, nil
}
