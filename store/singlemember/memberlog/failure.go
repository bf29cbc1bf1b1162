package memberlog

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

// SyncError is the error of an fsync or fdatasync. The kernel may have dropped the data that it could not write, and
// reports that only once: the next fsync succeeds, and reads return data that is only in memory. So this process must
// not use the file any more.
type SyncError struct{ Err error }

func (s SyncError) Error() string { return fmt.Sprintf("sync the log: %v", s.Err) }

func (s SyncError) Unwrap() error { return s.Err }

// WrapSyncError wraps an error of etcd's log in a SyncError if a sync has failed. etcd returns the error of a write
// with the path of the file, and that of an fdatasync as a bare errno. The error of preallocating the next segment is a
// bare errno, too; it is recognized by the missing next segment while the current one is full.
func (j *Log) WrapSyncError(err error) error {
	var file *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil, errors.As(err, &file) && file.Op != "sync", errors.As(err, &link):
		return err
	case isOutOfSpace(err) && !j.nextFileReserved() && j.newestFileIsFull():
		return err
	}
	return SyncError{err}
}

// nextFileReserved reports whether etcd has preallocated the next segment.
func (j *Log) nextFileReserved() bool {
	files, err := filepath.Glob(filepath.Join(j.prewriter.dir, "*.tmp"))
	return err == nil && slices.ContainsFunc(files, func(file string) bool {
		info, err := os.Stat(file)
		return err == nil && info.Size() >= wal.SegmentSizeBytes
	})
}

// newestFileIsFull reports whether the newest segment has grown beyond its preallocated size.
func (j *Log) newestFileIsFull() bool {
	files, err := Segments(j.prewriter.dir)
	if err != nil || len(files) == 0 {
		return false
	}
	info, err := os.Stat(files[len(files)-1].Path)
	return err == nil && info.Size() > wal.SegmentSizeBytes
}

// isOutOfSpace reports whether a write failed because the disk is full or a quota or file size limit is reached.
func isOutOfSpace(err error) bool { return isErrno(err, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG) }

func isErrno(err error, list ...syscall.Errno) bool {
	return slices.ContainsFunc(list, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// CanReopen reports whether the log can be reopened after an error: only after a write for which there was no space.
// What such a write has left in the file can be read, and is durable after a successful sync. After any other error it
// is not known what is on the disk.
func CanReopen(err error) bool {
	return isOutOfSpace(err) && !errors.As(err, new(SyncError))
}

// CanRetryReopen reports whether reopening the log can be retried after it has failed with err: for lack of space, or
// before anything was read or written.
func CanRetryReopen(err error) bool {
	if errors.As(err, new(SyncError)) || isErrno(err, syscall.EIO) {
		return false
	}
	return CanReopen(err) || errors.Is(err, fs.ErrNotExist) || isErrno(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM)
}
