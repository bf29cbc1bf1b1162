package memberlog

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
	// aheadBy is how many bytes of a segment are prewritten at once.
	aheadBy = 128 << 10
	// perRecord is an upper bound for what the log adds to an entry.
	perRecord = 128
)

// prewriter writes zeros to the blocks of the log that will be used next. etcd preallocates its segments, so these
// blocks read as zeros already, but the file system marks a preallocated block as used when it is first written, and
// does that before an fsync returns. Blocks that were written before need no such metadata update. On journaling file
// systems that saves a third of the time of a commit.
//
// It overwrites nothing but zeros.
type prewriter struct {
	dir string
	// mu is held while the end of the log is written to by a goroutine without the write turn.
	mu sync.Mutex
	// The remaining fields belong to the goroutine with the write turn.
	file      *os.File
	at        int64 // offset at which to continue
	untilNext int   // bytes that the log may grow by before more zeros have to be written
	off       bool  // prewriting has failed and is not tried again
}

// prepare is called before entries are appended.
func (a *prewriter) prepare(entries []*raftpb.Entry) {
	if a.off {
		return
	}
	a.untilNext -= perRecord // for the record with the hard state
	for _, e := range entries {
		a.untilNext -= len(e.GetData()) + perRecord
	}
	if a.untilNext > 0 {
		return
	}
	a.untilNext = aheadBy
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.openNewest()
	if err == nil {
		err = a.write()
	}
	a.off = err != nil // the log works without it
}

// openNewest opens the newest segment, to which the log is appended.
func (a *prewriter) openNewest() error {
	names, err := filesWithSuffix(a.dir, ".wal")
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

// open opens a segment to prewrite it.
func (a *prewriter) open(name string) (err error) {
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
	// No readahead: only few blocks are read.
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM); err != nil {
		return err
	}
	// This finds the first block that was never written, or a later one if blocks were read before.
	a.at, err = unix.Seek(fd, 0, unix.SEEK_HOLE)
	return err
}

// errNotInPlace is returned for file systems that may not overwrite blocks in place, where prewriting does not help.
var errNotInPlace = errors.New("the file system may not write in place")

// write overwrites the next blocks that contain zeros with zeros.
func (a *prewriter) write() error {
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

// close closes the segment, if one is open.
func (a *prewriter) close() error {
	if a.file == nil {
		return nil
	}
	f := a.file
	a.file = nil
	return f.Close()
}
