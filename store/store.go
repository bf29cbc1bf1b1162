// Package store is hop 7 of 12: the compare-and-swap transaction in etcd. It is the only package that talks to etcd.
//
// It owns the etcd member in this process (Embed) or the connection to an etcd in other processes (Dial), the leases of
// keys that expire, the watches, and the compaction of history. Its callers use the three interfaces of package kv. It
// does not interpret keys and values.
//
// A write is acknowledged when it is on the disk of the member, or of a majority of the members. Revisions are those of
// etcd: each transaction has one, and they only grow, even across a crash.
package store

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"proa.dev/internal/wait"
	"proa.dev/kv"
)

// Etcd is the store. It is safe for concurrent use; make one with Embed or Dial.
type Etcd struct {
	member  member
	leases  leases
	hook    func(op, key string) error
	timeout time.Duration
	log     *slog.Logger

	historyBytes int64

	// life is held for reading by every operation that uses the member, and for writing by Close, so that no operation
	// uses a closed backend. It guards closed.
	life   sync.RWMutex
	closed bool

	// watching guards watches.
	watching sync.Mutex
	watches  map[*watch]struct{}
	// written counts the bytes that were written since the last round of compaction, and compactSoon asks for one.
	written     atomic.Int64
	compactSoon wait.Signal
	// wanted is the revision that every watch has to reach because of a call of Progress.
	wanted atomic.Int64
}

// Config configures a store. Only Dir (for Embed) or Endpoints (for Dial) must be set.
type Config struct {
	// Dir holds the data of an embedded member, laid out as etcd lays it out.
	Dir string

	// Endpoints are the addresses of an etcd in other processes.
	Endpoints []string
	// CAFile, CertFile and KeyFile authenticate both sides of the connection to Endpoints.
	CAFile, CertFile, KeyFile string

	// Timeout bounds an operation on an etcd in other processes, in addition to its context; 0 means ten seconds. A
	// snapshot may take longer.
	Timeout time.Duration
	// HistoryBytes is how many bytes are written until history is compacted although the interval is not over; 0 means 512 MiB. It is
	// twice that, at most, that history takes: values that are written again and again would fill the database in minutes.
	HistoryBytes int64
	// Log receives etcd's warnings; nil drops them.
	Log *slog.Logger
	// Hook, if not nil, is called before each operation with its name (get, list, watch, progress, fresh, commit,
	// compact) and its first key or prefix. If it returns an error, the operation fails as if etcd had not answered. It
	// is for tests only.
	Hook func(op, key string) error
}

// member is the etcd of a store: the member in this process, or the connection to other processes. Its responses and
// errors are etcd's; the store translates them.
type member interface { //nolint:interfacebloat // all operations of an etcd, in this process or in others
	// txn makes a transaction. With useReserve it may use the disk space that is kept in reserve.
	txn(ctx context.Context, req *pb.TxnRequest, useReserve bool) (*pb.TxnResponse, error)
	// read reads a range at the current or a past revision.
	read(ctx context.Context, r span) (page, error)
	grant(ctx context.Context, ttl int64) (id int64, err error)
	compact(ctx context.Context, rev int64) error
	// revision returns the current revision, linearizably.
	revision(ctx context.Context) (int64, error)
	// fresh implements Fresh of kv.Watcher.
	fresh(ctx context.Context, prefix string) (int64, error)
	// saw records that a caller has seen a key at a revision; see freshness.
	saw(key string, rev int64)
	// sawAll records the same for all keys with a prefix.
	sawAll(prefix string, rev int64)
	open(ctx context.Context, prefix string, after int64) (stream, error)
	healthy(ctx context.Context) error
	// room returns why writes are refused for lack of disk space, or nil.
	room() error
	size(ctx context.Context) (int64, error)
	snapshot(ctx context.Context, w io.Writer) error
	// interrupt ends the operations in progress that wait for other processes.
	interrupt()
	// shared reports whether other processes may write, too.
	shared() bool
	close() error
}

var errClosed = errors.New("the store is closed")

var (
	_ kv.Reader    = (*Etcd)(nil)
	_ kv.Watcher   = (*Etcd)(nil)
	_ kv.Committer = (*Etcd)(nil)
)

func newEtcd(m member, cfg Config) *Etcd {
	return &Etcd{
		member:  m,
		hook:    cfg.Hook,
		timeout: cfg.Timeout,
		log:     cfg.Log,
		watches: map[*watch]struct{}{},

		historyBytes: cfg.HistoryBytes, compactSoon: wait.NewSignal(),
	}
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = 512 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// begin begins an operation. The caller must call the returned function at its end.
func (e *Etcd) begin(ctx context.Context, op, key string) (context.Context, context.CancelFunc, error) {
	if e.hook != nil {
		if err := e.hook(op, key); err != nil {
			return nil, nil, wrapError(op, key, unavailable{err})
		}
	}
	e.life.RLock()
	if e.closed {
		e.life.RUnlock()
		return nil, nil, wrapError(op, key, unavailable{errClosed})
	}
	if e.member.shared() {
		// A member in this process bounds its requests itself. Another process may hang, and the deadline of the caller
		// may be far away.
		ctx, cancel := context.WithTimeout(ctx, e.timeout)
		return ctx, func() { cancel(); e.life.RUnlock() }, nil
	}
	return ctx, e.life.RUnlock, nil
}

// Revision returns the current revision of the store, linearizably.
func (e *Etcd) Revision(ctx context.Context) (int64, error) {
	ctx, end, err := e.begin(ctx, "revision", "")
	if err != nil {
		return 0, err
	}
	defer end()
	rev, err := e.member.revision(ctx)
	return rev, wrapError("read the revision", "", err)
}

// Fresh returns the revision that a cache of prefix, which is fed by a watch, has to reach to contain every write that
// was acknowledged before the call. See freshness.
func (e *Etcd) Fresh(ctx context.Context, prefix string) (int64, error) {
	if e.hook != nil {
		if err := e.hook("fresh", prefix); err != nil {
			return 0, wrapError("fresh", prefix, unavailable{err})
		}
	}
	rev, err := e.member.fresh(ctx, prefix)
	return rev, wrapError("fresh", prefix, err)
}

// Healthy returns an error if the store does not answer reads or does not accept writes.
func (e *Etcd) Healthy(ctx context.Context) error {
	ctx, end, err := e.begin(ctx, "healthy", "")
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	return wrapError("check", "health", e.member.healthy(ctx))
}

// Room returns why writes are refused for lack of disk space, or nil if they are not. For an etcd in other processes,
// Healthy checks that.
func (e *Etcd) Room(ctx context.Context) error {
	_, end, err := e.begin(ctx, "room", "")
	if err != nil {
		return err
	}
	defer end()
	return wrapError("check", "room", e.member.room())
}

// Size returns the bytes that the database takes on disk.
func (e *Etcd) Size(ctx context.Context) (int64, error) {
	ctx, end, err := e.begin(ctx, "size", "")
	if err != nil {
		return 0, err
	}
	defer end()
	n, err := e.member.size(ctx)
	return n, wrapError("read", "size", err)
}

// Snapshot writes a copy of the database to w, in the format of `etcdctl snapshot save`: the file followed
// by its SHA-256 sum.
func (e *Etcd) Snapshot(ctx context.Context, w io.Writer) error {
	_, end, err := e.begin(ctx, "snapshot", "")
	if err != nil {
		return err
	}
	defer end()
	return wrapError("write", "snapshot", e.member.snapshot(ctx, w))
}

// Close waits for the operations in progress, ends the watches with an error and stops the member. Operations on an
// etcd in other processes are not waited for; they fail. It may be called twice.
func (e *Etcd) Close() error {
	e.member.interrupt()
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.wakeWatches()
	return e.member.close()
}
