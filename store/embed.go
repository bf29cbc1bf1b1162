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

	"proa.dev/store/singlemember"
)

const (
	// writeTimeout is how long a write waits for the writes before it.
	writeTimeout = 7 * time.Second
	// quota is the size of the database at which etcd refuses writes, its recommended maximum.
	quota = 8 << 30
	// reserve is the disk space that ordinary writes leave free, for deletions, for a restart and for defragmenting the
	// database. On a full disk etcd's database could not be written, which would end the process.
	reserve = 64 << 20
	// maxRequest is etcd's own default for the size of one transaction.
	maxRequest = 3 << 19
	// backendEvery is how long writes are collected before they are committed to the database, which costs two fsyncs
	// and the changed pages. Writes are durable before that, because they are in the log. etcd's default is 100 ms;
	// more than this would only make its buffer grow.
	backendEvery = 500 * time.Millisecond
	// snapshotEvery is the number of writes after which a snapshot is made and the log is truncated; it is etcd's
	// default.
	snapshotEvery = 10000
	// snapshotBytes is the size of the writes after which that happens, too: with large objects the log would otherwise
	// grow to gigabytes.
	snapshotBytes = 16 << 20
	// logFile is the size of one segment of the log. The current and the next segment are preallocated. etcd's default
	// is 64 MB; a new segment costs a few fsyncs, and this is enough for some thousand writes of usual size.
	logFile = 4 << 20
	// maxTxnOps is etcd's own default for the operations of one transaction.
	maxTxnOps = 128

	memberName   = "default"
	clusterToken = "etcd-cluster"
	// peerURL is written into the member list. The member does not listen there.
	peerURL = "http://localhost:2380"
)

// setLogFile sets the segment size for the whole process, because etcd has it in a global variable.
var setLogFile = sync.OnceFunc(func() { wal.SegmentSizeBytes = logFile })

// local is an etcd member in this process. It is the only member of its cluster and listens on no port, so this process
// is its only client.
//
// Reads need no consensus round to be linearizable: a write is acknowledged only after this member has synced it to its
// log and applied it, so the applied state contains every acknowledged write.
type local struct {
	server *singlemember.Member
	lock   *fileutil.LockedFile
	freshness
}

// Embed starts an etcd member in this process on the data in cfg.Dir, which it creates if there is none, and returns
// when the member is ready. Only one process can use the data at a time.
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
	lock, err := lockDataFolder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	setLogFile()
	end := &fatal{}
	server, err := singlemember.Open(ctx, singlemember.Config{
		Dir: cfg.Dir, Name: memberName, PeerURL: peerURL, Token: clusterToken,
		Quota: quota, Reserve: reserve, MaxRequest: maxRequest, BatchInterval: backendEvery, SnapshotEvery: snapshotEvery,
		SnapshotBytes: snapshotBytes,
		WriteTimeout:  writeTimeout, Log: newZap(cfg.Log, end), OnFatal: exitProcess,
	})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	end.started.Store(true)
	l := &local{server: server, lock: lock}
	l.current = server.KV().Rev
	return l, nil
}

// txn makes a transaction, and refuses those that etcd's API refuses.
func (l *local) txn(ctx context.Context, req *pb.TxnRequest, useReserve bool) (*pb.TxnResponse, error) {
	if err := checkTxn(req); err != nil {
		return nil, err
	}
	if useReserve {
		return l.server.TxnFromReserve(ctx, req)
	}
	return l.server.Txn(ctx, req)
}

// checkTxn returns an error for a transaction with too many operations, with an empty key, or that writes a key twice.
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

// written returns the key that an operation puts or deletes.
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
	// Reading one key under the lock of the shared buffer is far cheaper than copying the buffer; a longer read would
	// block writers.
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

// healthy waits for the writes in progress, which fails if the log cannot be written.
func (l *local) healthy(ctx context.Context) error {
	for _, a := range l.server.Alarms() {
		if a.Alarm != pb.AlarmType_NOSPACE {
			return fmt.Errorf("etcd has raised the alarm %s", a.Alarm)
		}
	}
	return l.server.Settle(ctx)
}

// room is separate from healthy because a restart does not help against a full disk.
func (l *local) room() error { return l.server.Room() }

func (l *local) size(context.Context) (int64, error) { return l.server.Backend().Size(), nil }

func (l *local) snapshot(ctx context.Context, w io.Writer) error {
	snap := l.server.Backend().Snapshot()
	defer snap.Close()
	sum := sha256.New()
	if _, err := snap.WriteTo(io.MultiWriter(ctxWriter{ctx, w}, sum)); err != nil {
		// The database returns only the text of the writer's error.
		return cmp.Or(ctx.Err(), err)
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// ctxWriter is a writer that fails when its context ends.
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
