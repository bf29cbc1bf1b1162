package singlemember

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"proa.dev/internal/wait"
	"proa.dev/store/singlemember/diskspace"
	"proa.dev/store/singlemember/memberdb"
	"proa.dev/store/singlemember/memberlog"
)

const (
	// minTTL is the shortest TTL of a lease, in seconds.
	minTTL = 1
	// slowApply is the duration from which on etcd logs a change as slow.
	slowApply = 100 * time.Millisecond
	// closeTimeout is how long closeAfterPanic waits for the database to close.
	closeTimeout = time.Second
)

// Open starts a member on the data in a folder, which it creates if there is none.
func Open(ctx context.Context, cfg Config) (m *Member, err error) {
	defer func() {
		// etcd panics if it cannot use the data.
		if r := recover(); r != nil {
			m.closeAfterPanic()
			m, err = nil, fmt.Errorf("unusable data: %v", r)
		}
	}()
	m = &Member{cfg: cfg, spaceLow: wait.NewSignal(), disk: diskspace.Disk{Dir: cfg.Dir, Measure: diskspace.FreeBytes}}
	if err := os.MkdirAll(datadir.ToSnapDir(cfg.Dir), 0o700); err != nil {
		return nil, err
	}
	if err := m.removeTemporaryFiles(); err != nil {
		return nil, err
	}
	m.ids.Store(uint64(time.Now().UnixNano()))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := memberlog.Inspect(cfg.Dir)
	if err == nil {
		err = memberdb.CheckSize(cfg.Dir, in)
	}
	if err == nil {
		// Damage must be found before the database is opened for writing, because that changes it.
		err = memberlog.Check(cfg.Dir, in, memberdb.AppliedIndex(datadir.ToBackendFileName(cfg.Dir)))
	}
	if err != nil {
		return nil, err
	}
	m.openBackend()
	if err := m.start(ctx, in); err != nil {
		return nil, errors.Join(err, m.release())
	}
	return m, nil
}

// release closes everything that is open. If the start has failed, that is only a part.
func (m *Member) release() (err error) {
	if m.lessor != nil {
		m.lessor.Stop()
	}
	if m.kv != nil {
		err = m.kv.Close()
	}
	if m.auth != nil {
		err = errors.Join(err, m.auth.Close())
	}
	if m.backend != nil {
		err = errors.Join(err, m.backend.Close())
	}
	if m.log != nil {
		err = errors.Join(err, m.log.Close())
	}
	return err
}

// closeAfterPanic closes what was opened by a start that has panicked. It does not wait for ever, because the panic may
// have left the database locked.
func (m *Member) closeAfterPanic() {
	log := m.log
	m.log = nil
	if log != nil {
		_ = log.Close()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.release()
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
	}
}

func (m *Member) openBackend() {
	db := memberdb.Open(memberdb.Config{
		Dir: m.cfg.Dir, Quota: m.cfg.Quota, BatchInterval: m.cfg.BatchInterval, Log: m.cfg.Log, OnCommit: m.disk.StartCommit,
	})
	m.index, m.hooks, m.backend = db.Index, db.Hooks, db.Backend
	schema.CreateMetaBucket(m.backend.BatchTx())
}

func (m *Member) start(ctx context.Context, in *memberlog.Inspection) error {
	entries, err := m.openLog(in)
	if err != nil {
		return err
	}
	if err := m.openStore(); err != nil {
		return err
	}
	for _, step := range []func() error{func() error { return m.replay(entries) }, ctx.Err, m.elect, m.migrate} {
		if err := step(); err != nil {
			return err
		}
	}
	m.lessor.Promote(0)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.background.Go(func() { m.expire(background) })
	m.background.Go(func() { m.freeSpaceWhenLow(background) })
	return nil
}

// openLog opens the log that was inspected, or makes one, and returns the entries that the database lacks.
func (m *Member) openLog(in *memberlog.Inspection) (missing []*raftpb.Entry, err error) {
	at := m.index.ConsistentIndex()
	if in != nil {
		var p memberlog.Content
		if m.log, p, err = memberlog.Open(m.cfg.Dir, in, at, m.cfg.Log); err != nil {
			return nil, err
		}
		if p.HasFirstEntry() {
			return m.resume(p, at)
		}
		// The process that created this log was killed before it wrote the first entry.
		err = errors.Join(m.log.Close(), os.RemoveAll(datadir.ToWALDir(m.cfg.Dir)))
		m.log = nil
		if err != nil {
			return nil, err
		}
	}
	return nil, m.create()
}

// resume reads the membership from the database, and returns the entries that the database lacks.
func (m *Member) resume(p memberlog.Content, at uint64) ([]*raftpb.Entry, error) {
	if err := schema.Validate(m.cfg.Log, m.backend.ReadTx()); err != nil {
		return nil, err
	}
	m.id = m.log.Node
	m.cluster = membership.NewCluster(m.cfg.Log)
	m.cluster.SetID(m.id, m.log.Cluster)
	m.cluster.SetBackend(schema.NewMembershipBackend(m.cfg.Log, m.backend))
	m.cluster.Recover(api.UpdateCapability)
	missing := p.Entries[at-m.log.Begin:]
	return missing, m.checkSingleMember(missing)
}

var errNotAlone = errors.New("the data is that of a cluster with more members")

// checkSingleMember returns an error if the cluster has or had other members, which might have other committed entries.
func (m *Member) checkSingleMember(entries []*raftpb.Entry) error {
	for _, who := range m.cluster.Members() {
		if who.ID != m.id || who.IsLearner {
			return errNotAlone
		}
	}
	for _, e := range entries {
		if e.GetType() == raftpb.EntryNormal {
			continue
		}
		change, err := confChange(e)
		if err != nil {
			return err
		}
		usual := change.GetType() == raftpb.ConfChangeAddNode || change.GetType() == raftpb.ConfChangeUpdateNode
		if !usual || change.GetNodeId() != uint64(m.id) {
			return errNotAlone
		}
	}
	return nil
}

// create creates the log of a new member.
func (m *Member) create() error {
	urls, err := types.NewURLs([]string{m.cfg.PeerURL})
	if err != nil {
		return err
	}
	cluster, err := membership.NewClusterFromURLsMap(m.cfg.Log, m.cfg.Token, types.URLsMap{m.cfg.Name: urls})
	if err != nil {
		return err
	}
	m.id = cluster.MemberByName(m.cfg.Name).ID
	if m.log, err = memberlog.Create(m.cfg.Dir, m.id, cluster.ID(), m.cfg.Log); err != nil {
		return err
	}
	cluster.SetID(m.id, cluster.ID())
	cluster.SetBackend(schema.NewMembershipBackend(m.cfg.Log, m.backend))
	m.cluster = cluster
	return nil
}

// openStore opens the layers above the database: leases, revisions, alarms and the applier.
func (m *Member) openStore() error {
	log := m.cfg.Log
	// Keys are attached to their leases when they are read, so leases come first.
	m.lessor = lease.NewLessor(log, m.backend, m.cluster,
		lease.LessorConfig{MinLeaseTTL: minTTL, ExpiredLeasesRetryInterval: m.cfg.WriteTimeout})
	m.kv = mvcc.New(log, m.backend, m.lessor, mvcc.StoreConfig{})
	tokens, err := auth.NewTokenProvider(log, "simple", func(uint64) <-chan struct{} { return nil }, 0)
	if err != nil {
		return err
	}
	m.auth = auth.NewAuthStore(log, schema.NewAuthBackend(log, m.backend), tokens, 0)
	if m.alarms, err = v3alarm.NewAlarmStore(log, schema.NewAlarmBackend(log, m.backend)); err != nil {
		return err
	}
	m.quota = storage.NewBackendQuota(log, m.cfg.Quota, m.backend, "solo")
	m.applier = apply.NewUberApplier(apply.ApplierOptions{
		Logger: log, KV: m.kv, AlarmStore: m.alarms, AuthStore: m.auth, Lessor: m.lessor, Cluster: m.cluster, RaftStatus: m,
		SnapshotServer:  m,
		ConsistentIndex: m.index, TxnModeWriteWithSharedBuffer: true, Backend: m.backend, QuotaBackendBytesCfg: m.cfg.Quota,
		WarningApplyDuration: slowApply,
	})
	m.backend.SetTxPostLockInsideApplyHook(m.storeAppliedIndex)
	m.applied.Store(m.index.ConsistentIndex())
	return nil
}

// elect begins a new term with an empty entry, as an etcd server does when it becomes leader. For a new member, the
// entry that adds it comes first. If the cluster version is older than this etcd, an entry that raises it follows.
func (m *Member) elect() error {
	var entries []*raftpb.Entry
	if m.log.Last == 0 {
		e, err := m.firstEntry()
		if err != nil {
			return err
		}
		entries = append(entries, e)
		m.log.Term = e.GetTerm()
	}
	m.log.Term++
	entries = append(entries, &raftpb.Entry{Type: raftpb.EntryNormal.Enum()})
	if v := binaryVersion(); m.cluster.Version() == nil || m.cluster.Version().LessThan(v) {
		p, err := m.newProposal(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: v.String()}})
		if err != nil {
			return err
		}
		entries = append(entries, p.entry)
	}
	if err := m.log.Append(entries); err != nil {
		return err
	}
	return m.replay(entries)
}

// firstEntry returns the first entry of a log, which adds the member to the cluster.
func (m *Member) firstEntry() (*raftpb.Entry, error) {
	who, err := json.Marshal(m.cluster.Member(m.id))
	if err != nil {
		return nil, err
	}
	change, err := proto.Marshal(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(uint64(m.id)), Context: who})
	if err != nil {
		return nil, err
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Term: new(uint64(1)), Data: change}, nil
}

func binaryVersion() semver.Version {
	v := semver.New(version.Version)
	return semver.Version{Major: v.Major, Minor: v.Minor}
}

// reopenLog reopens the log after it could not be written. Entries that the log has and the database lacks are applied;
// their callers got an error that leaves open whether the change was made.
func (m *Member) reopenLog() {
	m.applying.Lock()
	defer m.applying.Unlock()
	err := m.reopenLogOnce()
	if err != nil {
		m.cfg.Log.Error("the store takes no changes", zap.Error(err))
		if !memberlog.CanRetryReopen(err) {
			_ = m.setBroken(err, true)
		}
	}
	m.writeTurn.reopened(err)
}

func (m *Member) reopenLogOnce() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read the log again: %v", r)
		}
	}()
	if m.log != nil {
		// The log must be closed to release its file locks.
		if err := m.log.Close(); err != nil {
			return err
		}
		m.log = nil
	}
	at := m.applied.Load()
	in, err := memberlog.Inspect(m.cfg.Dir)
	if err == nil && in == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return err
	}
	log, p, err := memberlog.Open(m.cfg.Dir, in, at, m.cfg.Log)
	if err != nil {
		return err
	}
	m.log = log
	if err := m.replay(p.Entries[at-log.Begin:]); err != nil {
		return err
	}
	return m.elect()
}

// migrate migrates the database to the schema of this etcd version.
func (m *Member) migrate() error {
	tx := m.backend.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	// The schema version is detected by the term, which a new database does not have yet.
	m.index.UnsafeSave(tx)
	target := binaryVersion()
	if now, err := schema.UnsafeDetectSchemaVersion(m.cfg.Log, tx); err == nil && now == target {
		return nil
	}
	return schema.UnsafeMigrate(m.cfg.Log, tx, m.log, target)
}
