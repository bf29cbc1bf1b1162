package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

var errInUse = errors.New("the data is in use by another process")

// hold makes the data folder and makes sure that no other process uses it; etcd itself would wait for the
// other one for ever. Two locks are looked at: our own, held as long as the member runs, keeps two of us
// apart without a race; that of the database tells about an etcd started by other means.
func hold(dir string, log *zap.Logger) (*fileutil.LockedFile, error) {
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
	if err := prepare(dir, log); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// prepare removes what a member left that was killed before it existed. etcd could not start from that: it
// would wait for a leader that nobody can elect, because the log does not even say who the members are.
func prepare(dir string, log *zap.Logger) error {
	known, err := knowsMembers(datadir.ToBackendFileName(dir))
	if err != nil || known || !wal.Exist(datadir.ToWALDir(dir)) {
		return err
	}
	begun, err := hasBegun(datadir.ToWALDir(dir), log)
	if err != nil || begun {
		return err
	}
	return os.RemoveAll(datadir.ToMemberDir(dir))
}

// knowsMembers says whether the database lists the members of its cluster.
func knowsMembers(path string) (known bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Millisecond})
	if errors.Is(err, berrors.ErrTimeout) {
		return false, errInUse
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *bolt.Tx) error {
		if b := tx.Bucket(schema.Members.Name()); b != nil {
			k, _ := b.Cursor().First()
			known = k != nil
		}
		return nil
	})
	return known, err
}

// hasBegun says whether the log has committed its first entry, which names the member. Before that no write
// can have been acknowledged.
func hasBegun(dir string, log *zap.Logger) (bool, error) {
	w, err := wal.OpenForRead(log, dir, &walpb.Snapshot{})
	if err != nil {
		return false, err
	}
	defer w.Close()
	_, state, entries, err := w.ReadAll()
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return len(entries) > 1 || state.GetCommit() > 0, nil
}
