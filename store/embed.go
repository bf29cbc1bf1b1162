package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/features"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
)

const (
	// tickMs and electionTicks are short because a member without peers has nobody to wait for: it elects
	// itself one to three ticks after its start. They are not shorter because each one wakes the process.
	tickMs        = 50
	electionTicks = 2
	// electionPatience is how long to wait for that before giving up.
	electionPatience = 10 * time.Second
	// quota is the size of the database at which etcd refuses writes, its recommended maximum.
	quota = 8 << 30
	// maxRequest is etcd's own default for the size of one transaction.
	maxRequest = 3 << 19
	// catchUpEntries is how many writes the log keeps in memory for members that lag behind. There are none.
	catchUpEntries = 10
	// backendEvery is how long writes gather before they go from the log into the database, which costs two syncs of its own and
	// the pages that they touch. What is in the log is safe: after a crash it is read from there. etcd's own default is a tenth
	// of a second; more than this would let its buffer grow for little.
	backendEvery = 500 * time.Millisecond
	// maxTxnOps is etcd's own default for the operations of one transaction.
	maxTxnOps = 128

	memberName   = "default"
	clusterToken = "etcd-cluster"
	// peerURL is written into the member list. Nobody listens there.
	peerURL = "http://localhost:2380"
)

// local is a member in this process, the only one of its cluster and without any listener, so that this
// process is its only client.
//
// Reads take no round through raft: a write is acknowledged only after the one member has synced it to its
// log and applied it, so what is applied here is all that anybody was told about.
type local struct {
	server *etcdserver.EtcdServer
	kv     pb.KVServer
	lease  pb.LeaseServer
	lock   *fileutil.LockedFile
	freshness
}

// Embed starts a member in this process on the data in cfg.Dir, which it makes when there is none, and
// returns when the member is ready. Only one process can hold the data at a time.
func Embed(ctx context.Context, cfg Config) (*Etcd, error) {
	cfg = cfg.withDefaults()
	l, err := boot(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	return newEtcd(l, cfg), nil
}

func boot(ctx context.Context, cfg Config) (*local, error) {
	if cfg.Dir == "" {
		return nil, errors.New("no data folder given")
	}
	log := newZap(cfg.Log)
	lock, err := hold(cfg.Dir, log)
	if err != nil {
		return nil, err
	}
	server, err := newServer(serverConfig(cfg.Dir, log))
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := start(ctx, server); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	l := &local{
		server: server,
		kv:     v3rpc.NewQuotaKVServer(server),
		lease:  v3rpc.NewQuotaLeaseServer(server),
		lock:   lock,
	}
	l.current = server.KV().Rev
	return l, nil
}

// start runs the server until it is ready, which includes the replay of its log. It stops it on failure.
func start(ctx context.Context, server *etcdserver.EtcdServer) error {
	server.Start()
	patience := time.NewTimer(electionPatience)
	defer patience.Stop()
	for {
		select {
		case <-server.ReadyNotify():
			return nil
		case <-server.StopNotify():
			return errors.New("the member stopped before it was ready")
		case <-patience.C:
			if server.Leader() == 0 {
				server.HardStop()
				return errors.New("the member does not elect itself: the data may be that of a larger cluster")
			}
		case <-ctx.Done():
			server.HardStop()
			return ctx.Err()
		}
	}
}

func serverConfig(dir string, log *zap.Logger) config.ServerConfig {
	peers := types.MustNewURLs([]string{peerURL})
	return config.ServerConfig{
		Name:                memberName,
		DataDir:             dir,
		PeerURLs:            peers,
		InitialPeerURLsMap:  types.URLsMap{memberName: peers},
		InitialClusterToken: clusterToken,
		NewCluster:          true,

		TickMs:        tickMs,
		ElectionTicks: electionTicks,
		PreVote:       true,

		SnapshotCount:               etcdserver.DefaultSnapshotCount,
		SnapshotCatchUpEntries:      catchUpEntries,
		MaxSnapFiles:                5,
		MaxWALFiles:                 5,
		QuotaBackendBytes:           quota,
		BackendBatchInterval:        backendEvery,
		BackendFreelistType:         bolt.FreelistMapType,
		MaxTxnOps:                   maxTxnOps,
		MaxRequestBytes:             maxRequest,
		WarningApplyDuration:        100 * time.Millisecond,
		WarningUnaryRequestDuration: 300 * time.Millisecond,
		StrictReconfigCheck:         true,
		AuthToken:                   "simple",
		TokenTTL:                    300,
		Logger:                      log,
		ServerFeatureGate:           features.NewDefaultServerFeatureGate(memberName, log),
	}
}

// newServer turns the panics and fatal messages with which etcd answers unusable data into errors. Once the
// server runs they end the process, and must: a member that cannot write its log may not go on.
func newServer(cfg config.ServerConfig) (s *etcdserver.EtcdServer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("unusable data: %v", r)
		}
	}()
	return etcdserver.NewServer(cfg)
}

// txn takes the way of etcd's clients only where its checks can find something: no key, keys that are named twice, too many of them,
// or a database that is full, which raises the alarm. A transaction of one key on a database with room goes to the server itself.
func (l *local) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	if len(req.Compare) != 1 || len(req.Compare[0].Key) == 0 || l.server.Backend().Size() > quota-2*maxRequest {
		return l.kv.Txn(ctx, req)
	}
	return l.server.Txn(ctx, req)
}

func (l *local) grant(ctx context.Context, ttl int64) (int64, error) {
	resp, err := l.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

func (l *local) compact(ctx context.Context, rev int64) error {
	_, err := l.kv.Compact(ctx, &pb.CompactionRequest{Revision: rev})
	return err
}

func (l *local) revision(context.Context) (int64, error) { return l.server.KV().Rev(), nil }

func (l *local) fresh(_ context.Context, prefix string) (int64, error) {
	return l.freshness.fresh(prefix), nil
}

func (l *local) shared() bool { return false }

func (l *local) read(ctx context.Context, s span) (page, error) {
	// A short read under the lock of the shared buffer is far cheaper than a copy of that buffer; a long
	// one would hold up the writers.
	mode := mvcc.SharedBufReadTxMode
	if s.end != nil {
		mode = mvcc.ConcurrentReadTxMode
	}
	tx := l.server.KV().Read(mode, traceutil.TODO())
	defer tx.End()
	r, err := tx.Range(ctx, s.key, mvccEnd(s.end), mvcc.RangeOptions{Limit: s.limit, Rev: s.rev, WithTotalCount: true})
	if err != nil {
		return page{}, err
	}
	return page{kvs: r.KVs, rev: r.Rev, count: int64(r.Count)}, nil
}

// healthy reads through raft, which fails when the log cannot be written or the member has stopped.
func (l *local) healthy(ctx context.Context) error {
	for _, a := range l.server.Alarms() {
		return fmt.Errorf("etcd has raised the alarm %s", a.Alarm)
	}
	_, err := l.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, CountOnly: true})
	return err
}

func (l *local) size(context.Context) (int64, error) { return l.server.Backend().Size(), nil }

func (l *local) snapshot(ctx context.Context, w io.Writer) error {
	snap := l.server.Backend().Snapshot()
	defer snap.Close()
	sum := sha256.New()
	if _, err := snap.WriteTo(io.MultiWriter(ctxWriter{ctx, w}, sum)); err != nil {
		// The database keeps only the text of a writer's error.
		return cmp.Or(ctx.Err(), err)
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// ctxWriter stops a long copy when its context ends.
type ctxWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c ctxWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

func (l *local) close() error {
	l.server.HardStop()
	return l.lock.Close()
}
