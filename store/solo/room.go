package solo

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"google.golang.org/protobuf/proto"
)

// lowest bounds the bytes of the disk below which even deletions are refused: the database could not be committed.
const lowest = 8 << 20

// ErrFull is the error of a change that needs room when the disk has little left. Deletions are still taken.
var ErrFull = errors.New("the disk of the data folder is nearly full")

// need says how necessary a change is when the disk is nearly full.
type need int

const (
	// needOrdinary is for changes that leave the whole reserve alone.
	needOrdinary need = iota
	// needReserve is for those without which the server does not start, or objects cannot be deleted.
	needReserve
	// needDelete is for those that only delete.
	needDelete
)

// space is the room that there is for changes.
type space struct {
	// reserve is how many bytes of the disk ordinary changes leave free.
	reserve int64
	// free are the bytes that the disk has left, unused those of its file that the database does not use.
	free, unused int64
	// reuse are those of them that compaction has freed since the disk is nearly full.
	reuse int64
}

// lowest returns how many bytes of the disk nobody takes.
func (s space) lowest() int64 { return min(s.reserve/8, lowest) }

// admits says that there is room for a change. Small changes find a place in what the database does not use. Large ones need pages in a
// row, so there must be as many as compaction has just freed; and if they do not find them all the same, they do not take the whole
// reserve.
func (s space) admits(n need) bool {
	unused := s.unused >= s.lowest()
	switch n {
	case needOrdinary:
		return s.free >= s.reserve || s.reuse >= max(1, s.lowest()/8) && s.free >= s.reserve/8*3
	case needReserve:
		return s.free >= s.reserve/4 || unused && s.free >= s.lowest()
	default:
		return s.free >= s.lowest() || unused
	}
}

// refusal is the error of a change that is not admitted.
func (s space) refusal(n need) error {
	left := max(s.free, 0) >> 20
	if n == needDelete {
		return fmt.Errorf("%w: %d MiB are left, too few even for deletions; make room on the disk", ErrFull, left)
	}
	return fmt.Errorf("%w: %d MiB are left, and %d MiB are kept for deletions and restarts; make room on the disk, or delete objects: their room is used again some seconds later",
		ErrFull, left, s.reserve>>20)
}

// space is the room that there is when so many bytes of the disk are free and so many promised. A disk that is nearly full wakes relieve.
func (m *Member) space(free, promised int64) space {
	s := space{reserve: int64(m.cfg.Reserve), free: free}
	if free < s.reserve {
		s.unused = m.backend.Size() - m.backend.SizeInUse() - promised
		select {
		case m.pressed <- struct{}{}:
		default:
		}
	}
	return s
}

// Room returns why changes that need room are refused, or nil when they are not.
func (m *Member) Room() error {
	if len(m.alarms.Get(pb.AlarmType_NOSPACE)) > 0 {
		return m.fullDatabase()
	}
	s := m.space(m.disk.available())
	s.reuse = m.disk.reusable()
	if !s.admits(needOrdinary) {
		return s.refusal(needOrdinary)
	}
	return nil
}

// room refuses a change for which there is no room on the disk or in the database; for the latter it raises the alarm, as
// etcd does. Unlike etcd it takes the alarm back when there is room again. It returns what disk.made has to be told afterwards.
func (m *Member) room(ctx context.Context, r proto.Message, n need) (taken int64, err error) {
	cost := m.quota.Cost(r)
	if cost == 0 {
		n = needDelete
	}
	taken, err = m.disk.admit(cost, n, m.space)
	if err != nil && m.settle() {
		taken, err = m.disk.admit(cost, n, m.space)
	}
	if err != nil {
		return 0, err
	}
	if cost > 0 {
		if err := m.databaseRoom(ctx, r); err != nil {
			m.disk.made(taken)
			return 0, err
		}
	}
	return taken, nil
}

// databaseRoom refuses a change for which the database has no room.
func (m *Member) databaseRoom(ctx context.Context, r proto.Message) error {
	alarmed := len(m.alarms.Get(pb.AlarmType_NOSPACE)) > 0
	fits := m.fits(r, alarmed) || m.shrink(m.shrinksBelowQuota) && m.fits(r, alarmed)
	if alarmed == fits {
		if err := m.alarm(ctx, !fits); err != nil {
			return errors.Join(etcderrors.ErrNoSpace, err)
		}
	}
	if !fits {
		return m.fullDatabase()
	}
	return nil
}

// fullDatabase is the error of a change for which the database has no room.
func (m *Member) fullDatabase() error {
	return fmt.Errorf("%w: all of its %d MiB are in use; delete what is not needed, which makes room when it is forgotten, some minutes later",
		etcderrors.ErrNoSpace, m.cfg.Quota>>20)
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
