package solo

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

// apply makes the change of an entry in the database, by etcd's own rules. When nobody waits for the answer what it would read
// is not read. An error means that the database can no longer be trusted to follow the log.
func (m *Member) apply(e *raftpb.Entry, r *pb.InternalRaftRequest, answer bool) (res *apply.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("apply entry %d of the log: %v", e.GetIndex(), r)
		}
	}()
	// The index goes into the database together with the change: see follow.
	m.index.SetConsistentApplyingIndex(e.GetIndex(), e.GetTerm())
	switch {
	case e.GetType() == raftpb.EntryConfChange:
		err = m.join(e)
	case r != nil:
		res = m.applier.Apply(&apply.InternalRaftRequestWrapper{InternalRaftRequest: r, SkipRangeExecution: !answer}, membership.ApplyBoth)
	}
	if err != nil {
		return nil, err
	}
	if m.index.ConsistentIndex() < e.GetIndex() {
		// It has changed nothing.
		m.index.SetConsistentIndex(e.GetIndex(), e.GetTerm())
	}
	m.applied.Store(e.GetIndex())
	if res == nil {
		res = &apply.Result{}
	}
	return res, nil
}

// asLogged makes a request what it is when it is read from the log, which does not tell an empty end of a range from none.
func asLogged(r *pb.TxnRequest) {
	for _, c := range r.Compare {
		c.RangeEnd = someBytes(c.RangeEnd)
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			switch op := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				op.RequestRange.RangeEnd = someBytes(op.RequestRange.RangeEnd)
			case *pb.RequestOp_RequestDeleteRange:
				op.RequestDeleteRange.RangeEnd = someBytes(op.RequestDeleteRange.RangeEnd)
			case *pb.RequestOp_RequestTxn:
				asLogged(op.RequestTxn)
			}
		}
	}
}

func someBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// follow is called by the database when a change begins to be made, under its lock.
func (m *Member) follow() {
	if index, term := m.index.ConsistentApplyingIndex(); index > m.index.UnsafeConsistentIndex() {
		m.index.SetConsistentIndex(index, term)
	}
}

// replay applies entries for whose answers nobody waits.
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

// join applies the entry that names the member. That it is the only one is checked when the log is opened.
func (m *Member) join(e *raftpb.Entry) error {
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

// snapshotIfDue lets the log begin anew when it has become long. It is called by who may apply.
func (m *Member) snapshotIfDue() error {
	if m.applied.Load()-m.log.begin <= m.cfg.SnapshotEvery && m.log.size.Load() <= m.cfg.SnapshotBytes {
		return nil
	}
	return m.snapshot()
}

// snapshot lets the log begin anew after what is applied, and removes what was before from the disk. It is called by who may apply.
func (m *Member) snapshot() error {
	index := m.applied.Load()
	// What the log may forget has to be in the database.
	m.kv.Commit()
	members := v2store.New("/0", "/1")
	m.cluster.Store(members)
	data, err := members.SaveNoCopy()
	if err != nil {
		return err
	}
	err = m.log.restart(&raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: new(index), Term: new(m.log.term), ConfState: m.voters()}})
	if err != nil {
		return err
	}
	if err := m.log.tidy(); err != nil {
		m.cfg.Log.Warn("old files of the log are not removed; it is tried again with the next", zap.Error(err))
	}
	return nil
}

// MemberID is, with the four after it, what etcd's rules put into answers.
func (m *Member) MemberID() types.ID { return m.id }

// Leader is the member itself.
func (m *Member) Leader() types.ID { return m.id }

// CommittedIndex is that of the last entry that was applied: what is committed is applied at once.
func (m *Member) CommittedIndex() uint64 { return m.applied.Load() }

// AppliedIndex is that of the last entry that was applied.
func (m *Member) AppliedIndex() uint64 { return m.applied.Load() }

// Term is that of the log.
func (m *Member) Term() uint64 { return m.log.term }

// ForceSnapshot is asked for by etcd's rules after a return to an older version, which does not happen here.
func (m *Member) ForceSnapshot() {}
