package podsource

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"proa.dev/internal/wait"
)

// inotifyWatch is an inotify watch of a folder or file.
type inotifyWatch struct {
	f     *os.File
	ended chan struct{}
}

// watchPath sends a signal whenever a folder or file changes, until the watch is closed.
func watchPath(at string, changes wait.Signal) (*inotifyWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel about changes: %w", err)
	}
	w := &inotifyWatch{f: os.NewFile(uintptr(fd), "inotify"), ended: make(chan struct{})}
	const what = unix.IN_CLOSE_WRITE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ATTRIB
	if _, err := unix.InotifyAddWatch(fd, at, what); err != nil {
		w.f.Close()
		return nil, &os.PathError{Op: "watch", Path: at, Err: err}
	}
	go w.read(changes)
	return w, nil
}

// read ends when the watch is closed. The kind of a change is ignored: everything is read again.
func (w *inotifyWatch) read(changes wait.Signal) {
	defer close(w.ended)
	buf := make([]byte, 16<<10)
	for {
		if _, err := w.f.Read(buf); err != nil {
			return
		}
		changes.Send()
	}
}

// close closes the watch, if there is one, and waits for its goroutine.
func (w *inotifyWatch) close() {
	if w != nil {
		w.f.Close()
		<-w.ended
	}
}
