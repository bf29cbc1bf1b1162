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

	"proa.dev/store/solo"
)

// Check reads the data in the folder of an embedded store that is stopped, and says what is there and what is damaged. It changes nothing.
func Check(dir string) (*solo.Findings, error) {
	lock, err := lockStopped(dir)
	if err != nil {
		return nil, err
	}
	f, err := solo.Check(dir)
	return f, errors.Join(err, lock.Close())
}

// lockStopped makes sure that there is a store in the folder and that nobody uses it.
func lockStopped(dir string) (*fileutil.LockedFile, error) {
	if _, err := os.Stat(filepath.Join(dir, "member")); err != nil {
		return nil, fmt.Errorf("there is no embedded store: %w", err)
	}
	return hold(dir)
}

// PlanRepair finds out what can be kept of the damaged data of an embedded store that is stopped. It changes nothing.
func PlanRepair(dir string) (*solo.Repair, error) {
	lock, err := lockStopped(dir)
	if err != nil {
		return nil, err
	}
	r, err := solo.PlanRepair(repairConfig(dir))
	return r, errors.Join(err, lock.Close())
}

// Repair replaces the log by what a plan keeps of it, opens the store once, and returns its revision.
func Repair(ctx context.Context, dir string) (r *solo.Repair, revision int64, err error) {
	lock, err := lockStopped(dir)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	setLogFile()
	if r, err = solo.PlanRepair(repairConfig(dir)); err != nil {
		return nil, 0, err
	}
	revision, err = r.Do(func() (int64, error) {
		m, err := solo.Open(ctx, repairConfig(dir))
		if err != nil {
			return 0, err
		}
		rev := m.KV().Rev()
		return rev, m.Close()
	})
	return r, revision, err
}

// repairConfig is that of a member without limits to what it finds. What is fatal to etcd is a panic, which becomes an error.
func repairConfig(dir string) solo.Config {
	return solo.Config{
		Dir: dir, Name: memberName, PeerURL: peerURL, Token: clusterToken, Quota: quota, MaxRequest: maxRequest, BatchInterval: backendEvery,
		SnapshotEvery: snapshotEvery, SnapshotBytes: snapshotBytes, Patience: patience, Log: zap.New(zapcore.NewNopCore(), zap.WithFatalHook(zapcore.WriteThenPanic)),
	}
}
