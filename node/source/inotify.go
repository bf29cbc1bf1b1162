package source

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watch is a folder or file that the kernel tells about.
type watch struct {
	f     *os.File
	ended chan struct{}
}

// notice puts something into changes whenever a folder or file changes, until it is closed.
func notice(at string, changes chan<- struct{}) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel about changes: %w", err)
	}
	w := &watch{f: os.NewFile(uintptr(fd), "inotify"), ended: make(chan struct{})}
	const what = unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB
	if _, err := unix.InotifyAddWatch(fd, at, what); err != nil {
		w.f.Close()
		return nil, &os.PathError{Op: "watch", Path: at, Err: err}
	}
	go w.read(changes)
	return w, nil
}

// read ends when the watch is closed. What exactly happened does not matter: everything is read again.
func (w *watch) read(changes chan<- struct{}) {
	defer close(w.ended)
	buf := make([]byte, 16<<10)
	for {
		if _, err := w.f.Read(buf); err != nil {
			return
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}

// close ends the watch and waits for it. There may be none.
func (w *watch) close() {
	if w != nil {
		w.f.Close()
		<-w.ended
	}
}
