package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"proa.dev/internal/wait"
)

var (
	errFull   = errors.New("the buffer is full: the file takes the events more slowly than they come")
	errClosed = errors.New("the audit log is closed")
)

// fileBuffer takes lines from requests and writes them in the background, as many at a time as have gathered.
type fileBuffer struct {
	out     io.WriteCloser
	max     int
	wait    time.Duration
	dropped func(n int, first bool, err error)

	mu       sync.Mutex // guards what follows
	pending  []byte
	closed   bool
	dropping bool          // the last line was dropped, so that the next one is not logged
	room     chan struct{} // closed when pending is taken

	wake wait.Signal
	done chan error
}

func newFileBuffer(out io.WriteCloser, bound int, maxWait time.Duration, lost func(int, bool, error)) *fileBuffer {
	s := &fileBuffer{out: out, max: bound, wait: maxWait, dropped: lost, room: make(chan struct{}), wake: wait.NewSignal(),
		done: make(chan error, 1)}
	go s.run() // ends in close, which waits for it
	return s
}

// put adds a line. When there is no room it waits, but not longer than the limit, and not while lines are being dropped
// already: a full disk must not stop the cluster.
func (s *fileBuffer) put(line []byte) {
	var limit <-chan time.Time
	s.mu.Lock()
	for !s.closed && len(s.pending) > 0 && len(s.pending)+len(line) > s.max {
		room := s.room
		if s.dropping {
			s.mu.Unlock()
			s.dropped(1, false, errFull)
			return
		}
		s.mu.Unlock()
		if limit == nil {
			t := time.NewTimer(s.wait)
			defer t.Stop()
			limit = t.C
		}
		select {
		case <-room:
			s.mu.Lock()
		case <-limit:
			s.mu.Lock()
			first := !s.dropping
			s.dropping = true
			s.mu.Unlock()
			s.dropped(1, first, errFull)
			return
		}
	}
	if s.closed {
		s.mu.Unlock()
		s.dropped(1, false, errClosed)
		return
	}
	s.dropping = false
	s.pending = append(s.pending, line...)
	s.mu.Unlock()
	s.wake.Send()
}

func (s *fileBuffer) run() {
	var spare []byte
	failing := false
	for range s.wake {
		s.mu.Lock()
		batch, last := s.pending, s.closed
		s.pending = spare[:0]
		close(s.room)
		s.room = make(chan struct{})
		s.mu.Unlock()
		if len(batch) > 0 {
			_, err := s.out.Write(batch)
			if err != nil {
				s.dropped(bytes.Count(batch, []byte{'\n'}), !failing, err)
			}
			failing = err != nil
		}
		if spare = batch; cap(spare) > 1<<20 {
			spare = nil // a burst should not occupy memory forever
		}
		if last {
			s.done <- s.out.Close()
			return
		}
	}
}

// close writes the rest. It may be called once.
func (s *fileBuffer) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake.Send()
	return <-s.done
}

// file is a log file that is rotated when it has grown: path becomes path.1, that path.2, and so on.
type file struct {
	path string
	max  int64
	keep int
	log  *slog.Logger

	f       *os.File
	size    int64
	regular bool // not a pipe or a device, which have no size and cannot be renamed
	torn    bool // the last write ended inside a line
}

func openFile(path string, most int64, keep int, log *slog.Logger) (*file, error) {
	l := &file{path: path, max: most, keep: keep, log: log}
	return l, l.open()
}

func (l *file) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600) // the file existed before, with other permissions
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	l.f, l.size, l.regular = f, info.Size(), info.Mode().IsRegular()
	return nil
}

// Write appends whole lines.
func (l *file) Write(b []byte) (int, error) {
	if l.regular && l.size > 0 && l.size+int64(len(b)) > l.max {
		if err := l.rotate(); err != nil {
			// Writing on is better than dropping events.
			l.log.Error("cannot rotate the audit log", "path", l.path, "err", err)
		}
	}
	if l.f == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	if l.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	if n > 0 {
		l.torn = n < len(b)
	}
	return n, err
}

func (l *file) rotate() error {
	old := func(n int) string { return fmt.Sprintf("%s.%d", l.path, n) }
	for n := l.keep - 1; n > 0; n-- {
		if err := os.Rename(old(n), old(n+1)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(l.path, old(1)); err != nil {
		return err
	}
	err := l.f.Close()
	l.f, l.torn = nil, false
	return errors.Join(err, l.open())
}

// Close closes the file.
func (l *file) Close() error {
	if l.f == nil {
		return nil
	}
	return l.f.Close()
}
