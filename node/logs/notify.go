package logs

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Notify tells of changes in folders. Everybody on a node shares one, because the kernel gives a user only some.
type Notify struct {
	file *os.File
	raw  syscall.RawConn

	mu   sync.Mutex // guards what follows
	dirs map[int32]map[chan struct{}]bool
}

// NewNotify opens the kernel's notifications; Run must run for it to tell anything, and closes it.
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
	return &Notify{file: f, raw: raw, dirs: map[int32]map[chan struct{}]bool{}}, nil
}

// Run hands out notifications until ctx ends.
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
					n.tell(wd)
				}
			}
			n.tell(wd)
			if mask&unix.IN_IGNORED != 0 { // the folder is gone
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

func (n *Notify) tell(wd int32) {
	for ch := range n.dirs[wd] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// watch returns a channel that has something in it when files of a folder have changed.
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
	wd, ch := int32(got), make(chan struct{}, 1)
	if n.dirs[wd] == nil {
		n.dirs[wd] = map[chan struct{}]bool{}
	}
	n.dirs[wd][ch] = true
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		all := n.dirs[wd]
		if !all[ch] {
			return
		}
		if delete(all, ch); len(all) == 0 {
			delete(n.dirs, wd)
			// It may be gone with its folder, or all with the process.
			_ = n.raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
		}
	}, nil
}
