package solo

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
)

const (
	// aheadBy is how much of the log's file is written before it is needed.
	aheadBy = 128 << 10
	// perRecord is more than the log adds to an entry.
	perRecord = 128
)

// ahead writes zeros to the places that the log will use next. They read as zeros before, too: etcd reserves its files as a whole. But
// the file system has to note of a reserved place that it is in use, and does so before it says that what was written there is on the
// disk; of a place that was written before it notes nothing. With a file system that has a journal of its own that is a third of what a
// commit takes.
//
// Nothing but zeros is ever written over.
type ahead struct {
	dir string
	// mu is held by who writes to the end of the log without having the turn.
	mu sync.Mutex
	// The rest is for who has the turn.
	file *os.File
	at   int64 // where in the file to go on
	left int   // bytes that the log may grow by before there is something to do
	off  bool
}

// prepare is called before entries are appended.
func (a *ahead) prepare(entries []*raftpb.Entry) {
	if a.off {
		return
	}
	a.left -= perRecord // for what the log says of itself
	for _, e := range entries {
		a.left -= len(e.GetData()) + perRecord
	}
	if a.left > 0 {
		return
	}
	a.left = aheadBy
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.follow()
	if err == nil {
		err = a.write()
	}
	a.off = err != nil // the log does without
}

// follow opens the file to whose end the log is appended, which is the last.
func (a *ahead) follow() error {
	names, err := filesOf(a.dir, ".wal")
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fs.ErrNotExist
	}
	last := filepath.Join(a.dir, names[len(names)-1])
	if a.file != nil && a.file.Name() == last {
		return nil
	}
	if err := a.close(); err != nil {
		return err
	}
	return a.open(last)
}

func (a *ahead) open(name string) (err error) {
	if a.file, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return err
	}
	fd := int(a.file.Fd())
	var s unix.Statfs_t
	if err := unix.Fstatfs(fd, &s); err != nil {
		return err
	}
	if s.Type != unix.EXT4_SUPER_MAGIC && s.Type != unix.XFS_SUPER_MAGIC {
		return errNotInPlace
	}
	// What is not needed is not to be read.
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
		return err
	}
	// That is the first place that was never written, or a later one if somebody has read it.
	a.at, err = unix.Seek(fd, 0, unix.SEEK_HOLE)
	return err
}

// errNotInPlace is for file systems to which what is written ahead would only be more.
var errNotInPlace = errors.New("the file system may not write in place")

// write goes on to write what is there, if it is zeros.
func (a *ahead) write() error {
	piece := make([]byte, 16<<10)
	for written := 0; written < aheadBy; {
		n, err := a.file.ReadAt(piece, a.at)
		if n == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(bytes.TrimLeft(piece[:n], "\x00")) == 0 {
			if _, err := a.file.WriteAt(piece[:n], a.at); err != nil {
				return err
			}
			written += n
		}
		a.at += int64(n)
	}
	return nil
}

func (a *ahead) close() error {
	if a.file == nil {
		return nil
	}
	f := a.file
	a.file = nil
	return f.Close()
}
