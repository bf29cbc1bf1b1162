package singlemember

import (
	"encoding/json"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v2store"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// apply applies an entry to the database with etcd's applier. If no caller waits for the answer, ranges in it are not
// read. After an error the database can no longer be trusted to match the log.
func (m *Member) apply(e *raftpb.Entry, r *pb.InternalRaftRequest, answer bool) (res *apply.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("apply entry %d of the log: %v", e.GetIndex(), r)
		}
	}()
	// The index is stored in the same database transaction as the change: see storeAppliedIndex.
	m.index.SetConsistentApplyingIndex(e.GetIndex(), e.GetTerm())
	switch {
	case e.GetType() == raftpb.EntryConfChange:
		err = m.applyMembershipChange(e)
	case r != nil:
		res = m.applier.Apply(&apply.InternalRaftRequestWrapper{InternalRaftRequest: r, SkipRangeExecution: !answer}, membership.ApplyBoth)
	}
	if err != nil {
		return nil, err
	}
	if m.index.ConsistentIndex() < e.GetIndex() {
		// The entry has changed nothing, so storeAppliedIndex was not called.
		m.index.SetConsistentIndex(e.GetIndex(), e.GetTerm())
	}
	m.applied.Store(e.GetIndex())
	if res == nil {
		res = &apply.Result{}
	}
	return res, nil
}

// normalizeTxn normalizes a request to what it will be when it is read from the log, where an empty range end and none
// are the same.
func normalizeTxn(r *pb.TxnRequest) {
	for _, c := range r.Compare {
		c.RangeEnd = nilIfEmpty(c.RangeEnd)
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			switch op := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				op.RequestRange.RangeEnd = nilIfEmpty(op.RequestRange.RangeEnd)
			case *pb.RequestOp_RequestDeleteRange:
				op.RequestDeleteRange.RangeEnd = nilIfEmpty(op.RequestDeleteRange.RangeEnd)
			case *pb.RequestOp_RequestTxn:
				normalizeTxn(op.RequestTxn)
			}
		}
	}
}

func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// storeAppliedIndex is called by the database at the beginning of a change, with its lock held. It stores the index of
// the entry that is being applied.
func (m *Member) storeAppliedIndex() {
	if index, term := m.index.ConsistentApplyingIndex(); index > m.index.UnsafeConsistentIndex() {
		m.index.SetConsistentIndex(index, term)
	}
}

// replay applies entries of the log that the database lacks.
func (m *Member) replay(entries []*raftpb.Entry) error {
	for _, e := range entries {
		var r *pb.InternalRaftRequest
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			r = &pb.InternalRaftRequest{}
			if err := proto.Unmarshal(e.GetData(), r); err != nil {
				return fmt.Errorf("read entry %d of the log: %w", e.GetIndex(), err)
			}
		}
		if _, err := m.apply(e, r, false); err != nil {
			return err
		}
	}
	return nil
}

// applyMembershipChange applies a membership change. When the log was opened, it was checked that there is only one
// member.
func (m *Member) applyMembershipChange(e *raftpb.Entry) error {
	change, err := confChange(e)
	if err != nil {
		return err
	}
	var who membership.ConfigChangeContext
	if err := json.Unmarshal(change.GetContext(), &who); err != nil {
		return fmt.Errorf("read entry %d of the log: %w", e.GetIndex(), err)
	}
	if change.GetType() == raftpb.ConfChangeUpdateNode {
		m.cluster.UpdateRaftAttributes(who.Member.ID, who.Member.RaftAttributes, membership.ApplyBoth)
	} else {
		m.cluster.AddMember(&who.Member, membership.ApplyBoth)
	}
	m.hooks.SetConfState(m.voters())
	return nil
}

func confChange(e *raftpb.Entry) (*raftpb.ConfChange, error) {
	c := &raftpb.ConfChange{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return nil, fmt.Errorf("read entry %d of the log: %w", e.GetIndex(), err)
	}
	return c, nil
}

func (m *Member) voters() *raftpb.ConfState { return &raftpb.ConfState{Voters: []uint64{uint64(m.id)}} }

// snapshotIfDue makes a snapshot if the log has become long. The caller holds m.applying.
func (m *Member) snapshotIfDue() error {
	if m.applied.Load()-m.log.Begin <= m.cfg.SnapshotEvery && m.log.Size.Load() <= m.cfg.SnapshotBytes {
		return nil
	}
	return m.snapshot()
}

// snapshot records in the log that the database has everything up to the applied entry, and removes older segments. The
// caller holds m.applying.
func (m *Member) snapshot() error {
	index := m.applied.Load()
	// Entries can be removed from the log only if they are in the database file.
	m.kv.Commit()
	members := v2store.New("/0", "/1")
	m.cluster.Store(members)
	data, err := members.SaveNoCopy()
	if err != nil {
		return err
	}
	err = m.log.SaveSnapshot(&raftpb.Snapshot{Data: data,
		Metadata: &raftpb.SnapshotMetadata{Index: new(index), Term: new(m.log.Term), ConfState: m.voters()}})
	if err != nil {
		return err
	}
	if err := m.log.RemoveOld(); err != nil {
		m.cfg.Log.Warn("old files of the log are not removed; it is tried again with the next", zap.Error(err))
	}
	return nil
}

// MemberID returns the ID of the member. Together with the following four methods it implements etcd's
// RaftStatusGetter.
func (m *Member) MemberID() types.ID { return m.id }

// Leader returns the ID of the member itself.
func (m *Member) Leader() types.ID { return m.id }

// CommittedIndex returns the index of the last applied entry: entries are applied as soon as they are committed.
func (m *Member) CommittedIndex() uint64 { return m.applied.Load() }

// AppliedIndex returns the index of the last applied entry.
func (m *Member) AppliedIndex() uint64 { return m.applied.Load() }

// Term returns the term of the log.
func (m *Member) Term() uint64 { return m.log.Term }

// ForceSnapshot does nothing. etcd's applier calls it for downgrades, which do not happen here.
func (m *Member) ForceSnapshot() {}
