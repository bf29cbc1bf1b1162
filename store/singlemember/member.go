// Package singlemember is an etcd member for clusters with one member: it uses etcd's log, database, revisions, leases
// and applier, but no raft consensus.
//
// In a cluster with one voter, an entry is committed as soon as it is on the disk of that voter. So the goroutine that
// proposes a change writes it to the log, applies it and gets the result. The data on the disk is what etcd would have
// written, including terms and votes: etcd and its tools can use it, and this package can use the data of an etcd
// server, as long as there is only one member.
//
// If there is no space for the log, the member answers reads, refuses every change with the reason, and reopens its log
// once a second. After any other failure it has to be restarted. That includes every failed sync, because the kernel
// may have dropped the data.
//
// The log is in package memberlog, the accounting of disk space in diskspace, and checking and repairing damaged data
// in datarepair.
package singlemember

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

	"proa.dev/internal/wait"
	"proa.dev/store/singlemember/diskspace"
	"proa.dev/store/singlemember/memberlog"
)

// Config configures a member. All fields but OnFatal are required.
type Config struct {
	// Dir has the data in etcd's layout. The caller makes sure that no other process uses it.
	Dir string
	// Name, PeerURL and Token are used to create a new member.
	Name, PeerURL, Token string
	// Quota is the size of the database at which changes are refused.
	Quota int64
	// Reserve is the number of bytes of the disk that are kept free.
	Reserve uint64
	// MaxRequest bounds the bytes of one change.
	MaxRequest int
	// BatchInterval is how long changes are collected before they are committed to the database file.
	BatchInterval time.Duration
	// A snapshot is made, and the log truncated, after SnapshotEvery changes or SnapshotBytes bytes of them.
	SnapshotEvery uint64
	SnapshotBytes int64
	// WriteTimeout is how long a change waits for the changes before it.
	WriteTimeout time.Duration
	// Log is the logger for etcd.
	Log *zap.Logger
	// OnFatal is called when the member has failed and can only be restarted. It may end the process; if it returns, the
	// member refuses all changes.
	OnFatal func(error)
}

// Member is an open member. It is safe for concurrent use.
type Member struct {
	cfg Config
	id  types.ID
	// log is nil if it could not be reopened; see reopenLog. It is changed by a goroutine that has the write turn and holds
	// applying.
	log     *memberlog.Log
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
	disk    diskspace.Disk
	ids     atomic.Uint64
	// defragmenting is held while the database is defragmented.
	defragmenting       sync.Mutex
	lastDefragmentCheck time.Time // when it was last checked whether defragmenting is worthwhile
	// defragmentWarned reports that a warning was logged because there is no space to defragment.
	defragmentWarned bool
	// committing is held while changes with promised space are committed.
	committing sync.Mutex
	// spaceLow wakes freeSpaceWhenLow when the disk is nearly full.
	spaceLow wait.Signal

	// writeTurn is the right to write to the log; see propose.
	writeTurn writeTurn
	// applying is held while the database is changed. It is locked before the write turn is passed on, so that changes
	// are applied in the order of the log.
	applying sync.Mutex
	// applied is the index of the last applied entry.
	applied atomic.Uint64

	stop       context.CancelFunc
	background sync.WaitGroup
}

// ErrBroken is the error of every change while the log cannot be written, and after an entry could not be applied.
var ErrBroken = errors.New("the store takes no changes")

// KV returns the multi-version store.
func (m *Member) KV() mvcc.WatchableKV { return m.kv }

// Backend returns the database.
func (m *Member) Backend() backend.Backend { return m.backend }

// Alarms returns the raised alarms.
func (m *Member) Alarms() []*pb.AlarmMember { return m.alarms.Get(pb.AlarmType_NONE) }

// Txn makes a transaction. A transaction whose conditions do not hold is written to the log, too. The caller must not
// change the request afterwards, because keys and values are not copied.
func (m *Member) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return m.txn(ctx, r, diskspace.Ordinary)
}

// TxnFromReserve makes a transaction like Txn, but may use the reserved disk space. It is for changes that are needed
// to start the server or to delete objects.
func (m *Member) TxnFromReserve(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return m.txn(ctx, r, diskspace.FromReserve)
}

func (m *Member) txn(ctx context.Context, r *pb.TxnRequest, n diskspace.Need) (*pb.TxnResponse, error) {
	normalizeTxn(r)
	taken, err := m.admit(ctx, r, n)
	if err != nil {
		return nil, err
	}
	defer m.disk.Done(taken)
	return responseOf[*pb.TxnResponse](m.propose(ctx, &pb.InternalRaftRequest{Txn: r}))
}

// Grant makes a lease.
func (m *Member) Grant(ctx context.Context, ttl int64) (*pb.LeaseGrantResponse, error) {
	// The ID of a lease must be positive.
	r := &pb.LeaseGrantRequest{TTL: ttl, ID: int64(m.nextID() & math.MaxInt64)}
	taken, err := m.admit(ctx, r, diskspace.Ordinary)
	if err != nil {
		return nil, err
	}
	defer m.disk.Done(taken)
	return responseOf[*pb.LeaseGrantResponse](m.propose(ctx, &pb.InternalRaftRequest{LeaseGrant: r}))
}

// Compact removes the history before a revision.
func (m *Member) Compact(ctx context.Context, rev int64) error {
	_, err := responseOf[*pb.CompactionResponse](m.propose(ctx, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: rev}}))
	return err
}

// Settle waits until the changes that were proposed before are done.
func (m *Member) Settle(ctx context.Context) error {
	_, err := m.propose(ctx, nil)
	return err
}

// responseOf returns the response to a proposal, or its error.
func responseOf[T any](r *apply.Result, err error) (T, error) {
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

// Close stops the member. There must be no concurrent or later calls.
func (m *Member) Close() error {
	m.stop()
	m.background.Wait()
	return m.release()
}

// Leases returns the leases.
func (m *Member) Leases() []*lease.Lease { return m.lessor.Leases() }

// Revoke revokes a lease, which deletes its keys.
func (m *Member) Revoke(ctx context.Context, id lease.LeaseID) error {
	_, err := responseOf[*pb.LeaseRevokeResponse](m.propose(ctx,
		&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: int64(id)}}))
	return err
}

// expire revokes leases that have expired.
func (m *Member) expire(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case list := <-m.lessor.ExpiredLeasesC():
			// Concurrent proposals share one sync of the log.
			var all sync.WaitGroup
			for _, l := range list {
				all.Go(func() {
					if err := m.Revoke(ctx, l.ID); err != nil && ctx.Err() == nil {
						m.cfg.Log.Warn("an expired lease could not be revoked; it is tried again", zap.Int64("lease", int64(l.ID)),
							zap.Error(err))
					}
				})
			}
			all.Wait()
		}
	}
}

// nextID returns a unique request ID. As in etcd, the IDs count up from the time of the start.
func (m *Member) nextID() uint64 { return m.ids.Add(1) }
