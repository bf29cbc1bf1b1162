package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"proa.dev/store/singlemember"
	"proa.dev/store/singlemember/datarepair"
	"proa.dev/store/singlemember/memberdb"
)

// Check reads the data of an embedded store that is stopped, and reports its content and its damage. It changes
// nothing.
func Check(dir string) (*datarepair.Findings, error) {
	lock, err := lockStopped(dir)
	if err != nil {
		return nil, err
	}
	f, err := datarepair.Check(dir)
	return f, errors.Join(err, lock.Close())
}

// lockStopped locks a folder, and fails if there is no store in it or the store is in use.
func lockStopped(dir string) (*fileutil.LockedFile, error) {
	if _, err := os.Stat(filepath.Join(dir, "member")); err != nil {
		return nil, fmt.Errorf("there is no embedded store: %w", err)
	}
	return lockDataFolder(dir)
}

// PlanRepair returns what can be kept of the damaged data of an embedded store that is stopped. It changes nothing.
func PlanRepair(dir string) (*datarepair.Repair, error) {
	lock, err := lockStopped(dir)
	if err != nil {
		return nil, err
	}
	r, err := datarepair.PlanRepair(databaseConfig(dir))
	return r, errors.Join(err, lock.Close())
}

// Repair repairs the data of an embedded store that is stopped: it replaces the log by the part of it that can be kept,
// opens the store once, and returns its revision.
func Repair(ctx context.Context, dir string) (r *datarepair.Repair, revision int64, err error) {
	lock, err := lockStopped(dir)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	setLogFile()
	if r, err = datarepair.PlanRepair(databaseConfig(dir)); err != nil {
		return nil, 0, err
	}
	revision, err = r.Do(func() (int64, error) {
		m, err := singlemember.Open(ctx, repairConfig(dir))
		if err != nil {
			return 0, err
		}
		rev := m.KV().Rev()
		return rev, m.Close()
	})
	return r, revision, err
}

// repairConfig returns the configuration of a member that is opened to repair it. It has no reserve, and fatal errors
// of etcd become panics, which are recovered.
func repairConfig(dir string) singlemember.Config {
	return singlemember.Config{
		Dir: dir, Name: memberName, PeerURL: peerURL, Token: clusterToken, Quota: quota, MaxRequest: maxRequest,
		BatchInterval: backendEvery,
		SnapshotEvery: snapshotEvery, SnapshotBytes: snapshotBytes, WriteTimeout: writeTimeout,
		Log: zap.New(zapcore.NewNopCore(), zap.WithFatalHook(zapcore.WriteThenPanic)),
	}
}

// databaseConfig returns the configuration of the database that is repaired.
func databaseConfig(dir string) memberdb.Config {
	c := repairConfig(dir)
	return memberdb.Config{Dir: c.Dir, Quota: c.Quota, BatchInterval: c.BatchInterval, Log: c.Log}
}
