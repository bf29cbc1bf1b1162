package solo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/coreos/go-semver/semver"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

const (
	// minTTL is the shortest life of a lease, in seconds.
	minTTL = 1
	// slowApply is from when on etcd calls a change slow.
	slowApply = 100 * time.Millisecond
	// abandonAfter is how long the end of a database is waited for whose start has panicked.
	abandonAfter = time.Second
)

// Open starts a member on the data in a folder, which it makes when there is none.
func Open(ctx context.Context, cfg Config) (m *Member, err error) {
	defer func() {
		// etcd answers unusable data with panics.
		if r := recover(); r != nil {
			m.abandon()
			m, err = nil, fmt.Errorf("unusable data: %v", r)
		}
	}()
	m = &Member{cfg: cfg, pressed: make(chan struct{}, 1), disk: disk{dir: cfg.Dir, measure: freeBytes}}
	if err := os.MkdirAll(datadir.ToSnapDir(cfg.Dir), 0o700); err != nil {
		return nil, err
	}
	if err := m.tidyUp(); err != nil {
		return nil, err
	}
	m.ids.Store(uint64(time.Now().UnixNano()))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := inspectLog(cfg.Dir)
	if err == nil {
		err = checkDatabase(cfg.Dir, in)
	}
	if err == nil {
		// Damage is found before the database is opened for writing, which changes it.
		err = checkLog(cfg.Dir, in, appliedIndex(datadir.ToBackendFileName(cfg.Dir)))
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

// release closes what is open: all of it when the member ends, and less when its start has failed.
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

// abandon closes what a start has opened that ended in a panic. Whoever panicked may hold a lock of the database for which its
// end would wait.
func (m *Member) abandon() {
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
	case <-time.After(abandonAfter):
	}
}

func (m *Member) openBackend() {
	m.index = cindex.NewConsistentIndex(nil)
	m.hooks = storage.NewBackendHooks(m.cfg.Log, m.index)
	b := backend.DefaultBackendConfig(m.cfg.Log)
	b.Path = datadir.ToBackendFileName(m.cfg.Dir)
	b.BatchInterval = m.cfg.BatchInterval
	b.BackendFreelistType = bolt.FreelistMapType
	b.MmapSize = uint64(m.cfg.Quota + m.cfg.Quota/10)
	b.Hooks = backend.NewHooks(func(tx backend.UnsafeReadWriter) {
		m.disk.commits()
		m.hooks.OnPreCommitUnsafe(tx)
	})
	m.backend = backend.New(b)
	m.index.SetBackend(m.backend)
	schema.CreateMetaBucket(m.backend.BatchTx())
}

func (m *Member) start(ctx context.Context, in *inspection) error {
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
	m.background.Go(func() { m.relieve(background) })
	return nil
}

// openLog opens the log that was inspected, or makes one, and returns the entries that the database lacks.
func (m *Member) openLog(in *inspection) (missing []*raftpb.Entry, err error) {
	at := m.index.ConsistentIndex()
	if in != nil {
		var p past
		if m.log, p, err = openJournal(m.cfg.Dir, in, at, m.cfg.Log); err != nil {
			return nil, err
		}
		if p.born() {
			return m.resume(p, at)
		}
		// Whoever made this log was killed before it said who it is.
		err = errors.Join(m.log.Close(), os.RemoveAll(datadir.ToWALDir(m.cfg.Dir)))
		m.log = nil
		if err != nil {
			return nil, err
		}
	}
	return nil, m.create()
}

// resume finds the members of the cluster and what the database lacks.
func (m *Member) resume(p past, at uint64) ([]*raftpb.Entry, error) {
	if err := schema.Validate(m.cfg.Log, m.backend.ReadTx()); err != nil {
		return nil, err
	}
	m.id = m.log.node
	m.cluster = membership.NewCluster(m.cfg.Log)
	m.cluster.SetID(m.id, m.log.cluster)
	m.cluster.SetBackend(schema.NewMembershipBackend(m.cfg.Log, m.backend))
	m.cluster.Recover(api.UpdateCapability)
	missing := p.entries[at-m.log.begin:]
	return missing, m.alone(missing)
}

var errNotAlone = errors.New("the data is that of a cluster with more members")

// alone makes sure that there has been no other member, who might know better what was agreed on.
func (m *Member) alone(entries []*raftpb.Entry) error {
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

// create makes the log of a new member.
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
	if m.log, err = newJournal(m.cfg.Dir, m.id, cluster.ID(), m.cfg.Log); err != nil {
		return err
	}
	cluster.SetID(m.id, cluster.ID())
	cluster.SetBackend(schema.NewMembershipBackend(m.cfg.Log, m.backend))
	m.cluster = cluster
	return nil
}

// openStore opens what lies above the database.
func (m *Member) openStore() error {
	log := m.cfg.Log
	// Keys find their leases when they are read, so leases come first.
	m.lessor = lease.NewLessor(log, m.backend, m.cluster, lease.LessorConfig{MinLeaseTTL: minTTL, ExpiredLeasesRetryInterval: m.cfg.Patience})
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
		Logger: log, KV: m.kv, AlarmStore: m.alarms, AuthStore: m.auth, Lessor: m.lessor, Cluster: m.cluster, RaftStatus: m, SnapshotServer: m,
		ConsistentIndex: m.index, TxnModeWriteWithSharedBuffer: true, Backend: m.backend, QuotaBackendBytesCfg: m.cfg.Quota, WarningApplyDuration: slowApply,
	})
	m.backend.SetTxPostLockInsideApplyHook(m.follow)
	m.applied.Store(m.index.ConsistentIndex())
	return nil
}

// elect begins a new term, as an etcd that elects itself does: with an entry that says nothing. A new member introduces itself
// before it; a version that the cluster does not have yet comes after it.
func (m *Member) elect() error {
	var entries []*raftpb.Entry
	if m.log.last == 0 {
		e, err := m.introduction()
		if err != nil {
			return err
		}
		entries = append(entries, e)
		m.log.term = e.GetTerm()
	}
	m.log.term++
	entries = append(entries, &raftpb.Entry{Type: raftpb.EntryNormal.Enum()})
	if v := binaryVersion(); m.cluster.Version() == nil || m.cluster.Version().LessThan(v) {
		p, err := m.newProposal(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: v.String()}})
		if err != nil {
			return err
		}
		entries = append(entries, p.entry)
	}
	if err := m.log.append(entries); err != nil {
		return err
	}
	return m.replay(entries)
}

// introduction is the first entry of a log: the member joins the cluster.
func (m *Member) introduction() (*raftpb.Entry, error) {
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

// mend reads the log again after it could not be written. What it has and the database lacks was proposed by callers who
// were told that they cannot know.
func (m *Member) mend() {
	m.applying.Lock()
	defer m.applying.Unlock()
	err := m.reopen()
	if err != nil {
		m.cfg.Log.Error("the store takes no changes", zap.Error(err))
		if !isWorthRetrying(err) {
			_ = m.breaks(err, true)
		}
	}
	m.turn.mended(err)
}

func (m *Member) reopen() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read the log again: %v", r)
		}
	}()
	if m.log != nil {
		// A log that is not closed keeps its locks.
		if err := m.log.Close(); err != nil {
			return err
		}
		m.log = nil
	}
	at := m.applied.Load()
	in, err := inspectLog(m.cfg.Dir)
	if err == nil && in == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return err
	}
	log, p, err := openJournal(m.cfg.Dir, in, at, m.cfg.Log)
	if err != nil {
		return err
	}
	m.log = log
	if err := m.replay(p.entries[at-log.begin:]); err != nil {
		return err
	}
	return m.elect()
}

// migrate brings the database to the layout of the version.
func (m *Member) migrate() error {
	tx := m.backend.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	// The layout is told from the term, which a new database does not have yet.
	m.index.UnsafeSave(tx)
	target := binaryVersion()
	if now, err := schema.UnsafeDetectSchemaVersion(m.cfg.Log, tx); err == nil && now == target {
		return nil
	}
	return schema.UnsafeMigrate(m.cfg.Log, tx, m.log, target)
}
