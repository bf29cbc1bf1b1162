package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"proa.dev/store/solo"
)

const (
	// patience is how long a write waits for those before it.
	patience = 7 * time.Second
	// quota is the size of the database at which etcd refuses writes, its recommended maximum.
	quota = 8 << 30
	// reserve is what writes leave free on the disk, for deletions, for a restart, and to write the database anew. Without it etcd's
	// database could not be written, and that would end the process.
	reserve = 64 << 20
	// maxRequest is etcd's own default for the size of one transaction.
	maxRequest = 3 << 19
	// backendEvery is how long writes gather before they go from the log into the database, which costs two syncs of its own and
	// the pages that they touch. What is in the log is safe: after a crash it is read from there. etcd's own default is a tenth
	// of a second; more than this would let its buffer grow for little.
	backendEvery = 500 * time.Millisecond
	// snapshotEvery is etcd's own default for the writes after which the log begins anew.
	snapshotEvery = 10000
	// snapshotBytes is the size of the writes after which it does so, too: with large objects it would take gigabytes otherwise.
	snapshotBytes = 16 << 20
	// logFile is the size of one file of the log. The one in use and the next are reserved as a whole. etcd's own default is 64 MB;
	// a new file costs a few flushes, and this is room for some thousand writes of usual size.
	logFile = 4 << 20
	// maxTxnOps is etcd's own default for the operations of one transaction.
	maxTxnOps = 128

	memberName   = "default"
	clusterToken = "etcd-cluster"
	// peerURL is written into the member list. Nobody listens there.
	peerURL = "http://localhost:2380"
)

// setLogFile sets the size for the whole process, once: etcd keeps it in a variable.
var setLogFile = sync.OnceFunc(func() { wal.SegmentSizeBytes = logFile })

// local is a member in this process, the only one of its cluster and without any listener, so that this
// process is its only client.
//
// Reads take no round through the log: a write is acknowledged only after the one member has synced it to its
// log and applied it, so what is applied here is all that anybody was told about.
type local struct {
	server *solo.Member
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
	lock, err := hold(cfg.Dir)
	if err != nil {
		return nil, err
	}
	setLogFile()
	end := &fatal{}
	server, err := solo.Open(ctx, solo.Config{
		Dir: cfg.Dir, Name: memberName, PeerURL: peerURL, Token: clusterToken,
		Quota: quota, Reserve: reserve, MaxRequest: maxRequest, BatchInterval: backendEvery, SnapshotEvery: snapshotEvery, SnapshotBytes: snapshotBytes,
		Patience: patience, Log: newZap(cfg.Log, end), Lost: lost,
	})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	end.started.Store(true)
	l := &local{server: server, lock: lock}
	l.current = server.KV().Rev
	return l, nil
}

// txn refuses what etcd refuses from its clients.
func (l *local) txn(ctx context.Context, req *pb.TxnRequest, useReserve bool) (*pb.TxnResponse, error) {
	if err := checkTxn(req); err != nil {
		return nil, err
	}
	if useReserve {
		return l.server.TxnFromReserve(ctx, req)
	}
	return l.server.Txn(ctx, req)
}

// checkTxn finds too many keys, one without a name, and one that is put and written once more.
func checkTxn(req *pb.TxnRequest) error {
	if len(req.Compare) > maxTxnOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range req.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for i, op := range req.Success {
		for _, other := range req.Success[:i] {
			if (op.GetRequestPut() != nil || other.GetRequestPut() != nil) && bytes.Equal(written(op), written(other)) {
				return rpctypes.ErrGRPCDuplicateKey
			}
		}
	}
	return nil
}

// written is the key that an operation puts or deletes.
func written(op *pb.RequestOp) []byte {
	if put := op.GetRequestPut(); put != nil {
		return put.Key
	}
	return op.GetRequestDeleteRange().GetKey()
}

func (l *local) grant(ctx context.Context, ttl int64) (int64, error) {
	resp, err := l.server.Grant(ctx, ttl)
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

func (l *local) compact(ctx context.Context, rev int64) error {
	return l.server.Compact(ctx, rev)
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
	r, err := tx.Range(ctx, s.key, mvccEnd(s.end), mvcc.RangeOptions{Limit: s.limit, Rev: s.rev, WithTotalCount: !s.uncounted})
	if err != nil {
		return page{}, err
	}
	return page{kvs: r.KVs, rev: r.Rev, count: int64(r.Count)}, nil
}

// healthy waits for the writes that are under way, which fails when the log cannot be written.
func (l *local) healthy(ctx context.Context) error {
	for _, a := range l.server.Alarms() {
		if a.Alarm != pb.AlarmType_NOSPACE {
			return fmt.Errorf("etcd has raised the alarm %s", a.Alarm)
		}
	}
	return l.server.Settle(ctx)
}

// room is apart from healthy because a restart does not help against a full disk.
func (l *local) room() error { return l.server.Room() }

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

func (l *local) interrupt() {}

func (l *local) close() error { return errors.Join(l.server.Close(), l.lock.Close()) }
