package solo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const (
	// lookEvery is how often the disk is looked at.
	lookEvery = 100 * time.Millisecond
	// measureEvery is how often a database that is full is looked at.
	measureEvery = time.Second
)

// ErrFull is the error of a change that needs room when the disk has little left. Deletions are still taken.
var ErrFull = errors.New("the disk of the data folder is full")

// room refuses a change for which there is no room on the disk or in the database; for the latter it raises the alarm, as
// etcd does. Unlike etcd it takes the alarm back when there is room again.
func (m *Member) room(ctx context.Context, r proto.Message) error {
	if m.quota.Cost(r) == 0 {
		return nil
	}
	if free := m.disk.free(m.cfg.Dir); free < m.cfg.Reserve {
		return fmt.Errorf("%w: %d MiB are left, and %d MiB are kept free", ErrFull, free>>20, m.cfg.Reserve>>20)
	}
	alarmed := len(m.alarms.Get(pb.AlarmType_NOSPACE)) > 0
	fits := m.fits(r, alarmed) || m.shrink() && m.fits(r, alarmed)
	if alarmed == fits {
		if err := m.alarm(ctx, !fits); err != nil {
			return errors.Join(etcderrors.ErrNoSpace, err)
		}
	}
	if !fits {
		return fmt.Errorf("%w: all of its %d MiB are in use; delete what is not needed, which makes room when it is forgotten, some minutes later",
			etcderrors.ErrNoSpace, m.cfg.Quota>>20)
	}
	return nil
}

// fits says that the database has room for a change. Where it had none there must be a tenth of it, or the alarm would come and go.
func (m *Member) fits(r proto.Message, alarmed bool) bool {
	return m.quota.Available(r) && (!alarmed || m.backend.Size() < m.cfg.Quota/10*9)
}

// alarm says that the database is full, or that it no longer is.
func (m *Member) alarm(ctx context.Context, full bool) error {
	r := &pb.AlarmRequest{MemberID: uint64(m.id), Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if full {
		r.Action = pb.AlarmRequest_ACTIVATE
	}
	_, err := m.propose(ctx, &pb.InternalRaftRequest{Alarm: r})
	return err
}

// shrink writes the database anew without the places that nothing uses any more, when a fifth of what it may hold can be won and
// the disk has room for both. The size of its file is what counts against the quota. Changes wait meanwhile.
func (m *Member) shrink() bool {
	if !m.shrinking.TryLock() {
		return false
	}
	defer m.shrinking.Unlock()
	if time.Since(m.measured) < measureEvery {
		return false
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	used := m.used()
	m.measured = time.Now()
	if used > m.cfg.Quota/5*4 {
		return false
	}
	if free := m.disk.free(m.cfg.Dir); free < m.cfg.Reserve+uint64(used) {
		m.cfg.Log.Warn("the database is full of what was deleted, and the disk too full to write it anew", zap.Uint64("free", free), zap.Int64("needed", used))
		return false
	}
	if err := m.backend.Defrag(); err != nil {
		m.cfg.Log.Warn("the database cannot be written anew", zap.Error(err))
		return false
	}
	return true
}

// used is how many bytes of the database are in use. It knows that of the last change that went into its file, so there has to be one.
func (m *Member) used() int64 {
	tx := m.backend.BatchTx()
	tx.LockOutsideApply()
	m.index.UnsafeSave(tx)
	tx.Unlock()
	m.backend.ForceCommit()
	return m.backend.SizeInUse()
}

// tidyUp removes what a shrink has left that was interrupted.
func (m *Member) tidyUp() error {
	left, err := filepath.Glob(datadir.ToBackendFileName(m.cfg.Dir) + ".tmp.*")
	for _, file := range left {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// disk remembers for a moment how much of the disk is free.
type disk struct {
	looked atomic.Int64
	bytes  atomic.Uint64
}

// free returns the bytes that are free for the folder. A disk that does not say has room.
func (d *disk) free(dir string) uint64 {
	now := time.Now().UnixNano()
	last := d.looked.Load()
	if last == 0 || now-last > int64(lookEvery) && d.looked.CompareAndSwap(last, now) {
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir, &s); err != nil || s.Blocks == 0 {
			s.Bavail, s.Bsize = 1<<40, 1
		}
		d.bytes.Store(s.Bavail * uint64(s.Bsize))
		d.looked.CompareAndSwap(0, now)
	}
	return d.bytes.Load()
}
