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

// hold makes the data folder and makes sure that no other process uses it; etcd itself would wait for the
// other one for ever. Two locks are looked at: our own, held as long as the member runs, keeps two of us
// apart without a race; that of the database tells about an etcd started by other means.
func hold(dir string) (*fileutil.LockedFile, error) {
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
	if err := tryDatabase(datadir.ToBackendFileName(dir)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// tryDatabase looks whether the database, if there is one, is locked. It does not read it: whether it can be read is for the member to say.
func tryDatabase(path string) error {
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
