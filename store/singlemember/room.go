package singlemember

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"google.golang.org/protobuf/proto"

	"proa.dev/store/singlemember/diskspace"
)

// space returns the space for changes, given the free and the promised bytes of the disk. If the disk is nearly full,
// it wakes freeSpaceWhenLow.
func (m *Member) space(free, promised int64) diskspace.Space {
	s := diskspace.Space{Reserve: int64(m.cfg.Reserve), Free: free}
	if free < s.Reserve {
		s.Unused = m.backend.Size() - m.backend.SizeInUse() - promised
		m.spaceLow.Send()
	}
	return s
}

// Room returns why ordinary changes are refused for lack of space, or nil if they are not.
func (m *Member) Room() error {
	if len(m.alarms.Get(pb.AlarmType_NOSPACE)) > 0 {
		return m.errQuotaExceeded()
	}
	if !m.fitsOrdinary(0) && m.backend.SizeInUse() > m.cfg.Quota/4*3 {
		return m.errQuotaExceeded()
	}
	s := m.space(m.disk.Available())
	s.Reuse = m.disk.Reusable()
	if !s.Admits(diskspace.Ordinary) {
		return s.Refusal(diskspace.Ordinary)
	}
	return nil
}

// admit returns an error for a change for which there is no space on the disk or in the database; in the latter case it
// raises the NOSPACE alarm, as etcd does. Unlike etcd, it clears the alarm when there is space again. The caller must
// pass the result to Disk.Done.
func (m *Member) admit(ctx context.Context, r proto.Message, n diskspace.Need) (taken int64, err error) {
	cost := m.quota.Cost(r)
	if cost == 0 {
		n = diskspace.OnlyDelete
	}
	taken, err = m.disk.Admit(cost, n, m.space)
	if err != nil && m.commitPromised() {
		taken, err = m.disk.Admit(cost, n, m.space)
	}
	if err != nil {
		return 0, err
	}
	if cost > 0 {
		if err := m.checkQuota(ctx, r, cost, n); err != nil {
			m.disk.Done(taken)
			return 0, err
		}
	}
	return taken, nil
}

// checkQuota returns an error for a change that exceeds the quota of the database, or for an ordinary one that exceeds its part of it.
func (m *Member) checkQuota(ctx context.Context, r proto.Message, cost int, n diskspace.Need) error {
	if n == diskspace.Ordinary && !m.fitsOrdinary(cost) && (!m.defragment(m.freesQuarterOfQuota) || !m.fitsOrdinary(cost)) {
		return m.errQuotaExceeded()
	}
	alarmed := len(m.alarms.Get(pb.AlarmType_NOSPACE)) > 0
	fits := m.fitsQuota(r, alarmed) || m.defragment(m.freesFifthOfQuota) && m.fitsQuota(r, alarmed)
	if alarmed == fits {
		if err := m.setAlarm(ctx, !fits); err != nil {
			return errors.Join(etcderrors.ErrNoSpace, err)
		}
	}
	if !fits {
		return m.errQuotaExceeded()
	}
	return nil
}

// errQuotaExceeded returns the error of a change that exceeds the quota of the database.
func (m *Member) errQuotaExceeded() error {
	return fmt.Errorf("%w: its %d MiB are in use, or kept for deletions; delete what is not needed, which makes room when it is forgotten, some minutes later",
		etcderrors.ErrNoSpace, m.cfg.Quota>>20)
}

// fitsOrdinary reports whether an ordinary change leaves an eighth of the quota to deletions: that of an object with a grace period is
// stored before the object goes, and the server needs some changes to start.
func (m *Member) fitsOrdinary(cost int) bool { return m.backend.Size()+int64(cost) < m.cfg.Quota/8*7 }

// fitsQuota reports whether a change fits into the quota. While the alarm is raised, a tenth of the quota must be free,
// so that the alarm does not flap.
func (m *Member) fitsQuota(r proto.Message, alarmed bool) bool {
	return m.quota.Available(r) && (!alarmed || m.backend.Size() < m.cfg.Quota/10*9)
}

// setAlarm raises or clears the NOSPACE alarm.
func (m *Member) setAlarm(ctx context.Context, full bool) error {
	r := &pb.AlarmRequest{MemberID: uint64(m.id), Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	if full {
		r.Action = pb.AlarmRequest_ACTIVATE
	}
	_, err := m.propose(ctx, &pb.InternalRaftRequest{Alarm: r})
	return err
}
