package solo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"google.golang.org/protobuf/proto"
)

// lookEvery is how often the disk is looked at.
const lookEvery = 100 * time.Millisecond

// ErrFull is the error of a change that needs room when the disk has little left. Deletions are still taken.
var ErrFull = errors.New("the disk of the data folder is full")

// room refuses a change for which there is no room on the disk or in the database; for the latter it raises the alarm, as
// etcd does.
func (m *Member) room(ctx context.Context, r proto.Message) error {
	if m.quota.Cost(r) == 0 {
		return nil
	}
	if free := m.disk.free(m.cfg.Dir); free < m.cfg.Reserve {
		return fmt.Errorf("%w: %d MiB are left, and %d MiB are kept free", ErrFull, free>>20, m.cfg.Reserve>>20)
	}
	if m.quota.Available(r) {
		return nil
	}
	if len(m.alarms.Get(pb.AlarmType_NOSPACE)) == 0 {
		alarm := &pb.AlarmRequest{MemberID: uint64(m.id), Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		if _, err := m.propose(ctx, &pb.InternalRaftRequest{Alarm: alarm}); err != nil {
			return errors.Join(etcderrors.ErrNoSpace, err)
		}
	}
	return etcderrors.ErrNoSpace
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
