package solo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// syncError is a sync (fsync, fdatasync) that has failed, for whatever reason. The kernel may have dropped what it could not write and
// says so only once: the next sync succeeds, and what is read comes from memory. So this process trusts the file no more.
type syncError struct{ error }

func (s syncError) Error() string { return fmt.Sprintf("sync the log: %v", s.error) }

func (s syncError) Unwrap() error { return s.error }

// failure tells the failed syncs of etcd's log from its failed writes. It returns both as the system gives them: a write with the path of
// the file, an fdatasync as a bare number. The reservation of the next file is a bare number as well; it has failed if that file is not there although
// the one before is full.
func (j *journal) failure(err error) error {
	var file *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil, errors.As(err, &file) && file.Op != "sync", errors.As(err, &link):
		return err
	case hasNoRoom(err) && !j.nextFileReserved() && j.newestFileIsFull():
		return err
	}
	return syncError{err}
}

// nextFileReserved says that etcd's log has made the file that comes after the one it writes to.
func (j *journal) nextFileReserved() bool {
	files, err := filepath.Glob(filepath.Join(j.ahead.dir, "*.tmp"))
	return err == nil && slices.ContainsFunc(files, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() >= wal.SegmentSizeBytes
	})
}

// newestFileIsFull says that what was written to the log's newest file goes beyond the size that was reserved for it.
func (j *journal) newestFileIsFull() bool {
	files, err := segmentFiles(j.ahead.dir)
	if err != nil || len(files) == 0 {
		return false
	}
	info, err := os.Stat(files[len(files)-1].path)
	return err == nil && info.Size() > wal.SegmentSizeBytes
}

// hasNoRoom says that a disk is full, or what a user or a file may have of it.
func hasNoRoom(err error) bool { return isErrno(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG) }

func isErrno(err error, list ...syscall.Errno) bool {
	return slices.ContainsFunc(list, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// isMendable says that the log can be tried again after an error: a write for which there was no room. What a write has left in the file is
// known, and is on the disk after a sync that succeeds. Of everything else nobody knows what is on the disk.
func isMendable(err error) bool {
	return hasNoRoom(err) && !errors.As(err, new(syncError))
}

// isWorthRetrying says that the log can be opened again later, after an attempt to do so has failed: for lack of room, or before anything was
// read or written.
func isWorthRetrying(err error) bool {
	if errors.As(err, new(syncError)) || isErrno(err, syscall.EIO) {
		return false
	}
	return isMendable(err) || errors.Is(err, fs.ErrNotExist) || isErrno(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM)
}
