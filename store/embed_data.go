package store

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

var errInUse = errors.New("the data is in use by another process")

// lockDataFolder creates the data folder and locks it, or fails if another process uses it; etcd itself would wait for
// the other process for ever. It takes a lock of our own, which is held as long as the member runs, and checks the lock
// of the database, which an etcd server that was started on the folder holds.
func lockDataFolder(dir string) (*fileutil.LockedFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, errInUse
	}
	if err != nil {
		return nil, err
	}
	if err := checkDatabaseLock(datadir.ToBackendFileName(dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// checkDatabaseLock returns an error if the database exists and is locked. It does not check its content.
func checkDatabaseLock(path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return errInUse
	} else if err != nil {
		return err
	}
	return nil
}
