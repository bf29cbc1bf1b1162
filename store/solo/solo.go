// Package solo is a member of etcd that is alone: etcd's own log, database, revisions, leases and rules, without the rounds
// in which members agree.
//
// A cluster with one voter has agreed on an entry as soon as the entry is on that voter's disk. So the goroutine that
// proposes a change writes it to the log, applies it and has the answer. What lies on the disk is what etcd would have
// written, terms and votes included: etcd and its tools go on from it, and solo goes on from what etcd wrote, as long as
// there is no second member.
//
// A member for whose log there is no room answers reads, refuses every change with the reason, and tries its log again once a
// second. One that fails otherwise is lost: it has to be started again. That includes every sync that fails, a full disk or not: the
// kernel may have dropped what it could not write.
package solo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

// Config says where the data is and how much there may be. Every field but Lost is needed.
type Config struct {
	// Dir holds the data, laid out as etcd lays it out. The caller makes sure that nobody else uses it.
	Dir string
	// Name, PeerURL and Token describe the member of data that is made.
	Name, PeerURL, Token string
	// Quota is the size of the database at which changes are refused.
	Quota int64
	// Reserve is how many bytes of the disk are kept free.
	Reserve uint64
	// MaxRequest bounds the bytes of one change.
	MaxRequest int
	// BatchInterval is how long changes gather before they go from the log into the database.
	BatchInterval time.Duration
	// SnapshotEvery is after how many changes the log begins anew, and SnapshotBytes after how many bytes of them. What was before
	// is removed from the disk.
	SnapshotEvery uint64
	SnapshotBytes int64
	// Patience is how long a change waits for those before it.
	Patience time.Duration
	// Log is etcd's.
	Log *zap.Logger
	// Lost is told when the data on the disk is not what it should be. It may end the process; when it returns, the member
	// refuses changes for good.
	Lost func(error)
}

// Member is an open member. It is safe for concurrent use.
type Member struct {
	cfg Config
	id  types.ID
	// log is nil when it could not be opened again; see mend. It is changed by who has the turn and may apply.
	log     *journal
	index   cindex.ConsistentIndexer
	hooks   *storage.BackendHooks
	backend backend.Backend
	cluster *membership.RaftCluster
	lessor  lease.Lessor
	kv      mvcc.WatchableKV
	auth    auth.AuthStore
	alarms  *v3alarm.AlarmStore
	applier apply.UberApplier
	quota   storage.Quota
	disk    disk
	ids     atomic.Uint64
	// shrinking is held by who writes the database anew.
	shrinking sync.Mutex
	measured  time.Time // when it was last looked at whether that is worth it
	// shrinkWarned says that it was said that there is no room for it.
	shrinkWarned bool
	// settling is held by who commits what was promised room.
	settling sync.Mutex
	// pressed wakes relieve.
	pressed chan struct{}

	// turn is who may write to the log; see propose.
	turn turn
	// applying is held by who changes the database. It is taken by who has the turn before that is passed on, so that
	// changes are applied in the order of the log.
	applying sync.Mutex
	// applied is the index of the last entry that was applied.
	applied atomic.Uint64

	stop       context.CancelFunc
	background sync.WaitGroup
}

// ErrBroken is the error of every change while the log cannot be written, and after an entry of it could not be applied.
var ErrBroken = errors.New("the store takes no changes")

// KV returns the revisions.
func (m *Member) KV() mvcc.WatchableKV { return m.kv }

// Backend returns the database.
func (m *Member) Backend() backend.Backend { return m.backend }

// Alarms returns what is wrong with the data.
func (m *Member) Alarms() []*pb.AlarmMember { return m.alarms.Get(pb.AlarmType_NONE) }

// Txn makes a change under conditions. A transaction whose conditions do not hold has its place in the log, too. The request
// belongs to the member from now on: keys and values are not copied.
func (m *Member) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return m.txn(ctx, r, needOrdinary)
}

// TxnFromReserve makes a change as Txn does, but one without which the server does not start, or objects cannot be deleted: it may use
// some of the room that is kept free on the disk.
func (m *Member) TxnFromReserve(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return m.txn(ctx, r, needReserve)
}

func (m *Member) txn(ctx context.Context, r *pb.TxnRequest, n need) (*pb.TxnResponse, error) {
	asLogged(r)
	taken, err := m.room(ctx, r, n)
	if err != nil {
		return nil, err
	}
	defer m.disk.made(taken)
	return as[*pb.TxnResponse](m.propose(ctx, &pb.InternalRaftRequest{Txn: r}))
}

// Grant makes a lease.
func (m *Member) Grant(ctx context.Context, ttl int64) (*pb.LeaseGrantResponse, error) {
	// Leases are known by positive numbers.
	r := &pb.LeaseGrantRequest{TTL: ttl, ID: int64(m.nextID() & math.MaxInt64)}
	taken, err := m.room(ctx, r, needOrdinary)
	if err != nil {
		return nil, err
	}
	defer m.disk.made(taken)
	return as[*pb.LeaseGrantResponse](m.propose(ctx, &pb.InternalRaftRequest{LeaseGrant: r}))
}

// Compact forgets what was before a revision.
func (m *Member) Compact(ctx context.Context, rev int64) error {
	_, err := as[*pb.CompactionResponse](m.propose(ctx, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}}))
	return err
}

// Settle returns when the changes that were under way have their answers.
func (m *Member) Settle(ctx context.Context) error {
	_, err := m.propose(ctx, nil)
	return err
}

// as is the answer to a proposal, or its error.
func as[T any](r *apply.Result, err error) (T, error) {
	var none T
	switch {
	case err != nil:
		return none, err
	case r.Err != nil:
		return none, r.Err
	}
	t, ok := r.Resp.(T)
	if !ok {
		return none, fmt.Errorf("etcd answers with %T", r.Resp)
	}
	return t, nil
}

// Close ends the member. There may be no other calls under way, or after it.
func (m *Member) Close() error {
	m.stop()
	m.background.Wait()
	return m.release()
}

// Leases returns the leases there are.
func (m *Member) Leases() []*lease.Lease { return m.lessor.Leases() }

// Revoke ends a lease, and with it the keys that live on it.
func (m *Member) Revoke(ctx context.Context, id lease.LeaseID) error {
	_, err := as[*pb.LeaseRevokeResponse](m.propose(ctx, &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: int64(id)}}))
	return err
}

// expire ends leases when their time is over.
func (m *Member) expire(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case list := <-m.lessor.ExpiredLeasesC():
			// Those that wait together share a sync of the log.
			var all sync.WaitGroup
			for _, l := range list {
				all.Go(func() {
					if err := m.Revoke(ctx, l.ID); err != nil && ctx.Err() == nil {
						m.cfg.Log.Warn("a lease whose time is over is not ended; it is tried again", zap.Int64("lease", int64(l.ID)), zap.Error(err))
					}
				})
			}
			all.Wait()
		}
	}
}

// nextID returns a number that no request has had: the time at the start, counted on, as etcd makes them.
func (m *Member) nextID() uint64 { return m.ids.Add(1) }
