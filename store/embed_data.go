package store

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
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

// tryDatabase opens and closes the database, if there is one.
func tryDatabase(path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Millisecond})
	if errors.Is(err, berrors.ErrTimeout) {
		return errInUse
	}
	if err != nil {
		return err
	}
	return db.Close()
}
