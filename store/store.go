// Package store is hop 7 of 12: the compare-and-swap transaction in etcd, and with it every other word that
// proa exchanges with etcd. Nothing else in the tree talks to etcd.
//
// It owns the member that runs in this process (Embed) or the connection to members elsewhere (Dial), the
// leases behind keys that expire, the watches, and the compaction of history. To its callers it is the
// three small interfaces of package kv. What lies under the keys is none of its business.
//
// A write is acknowledged when it is on the disk of the member, or of most members. Revisions are etcd's:
// one transaction has one, and they only grow, also across a crash.
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

	"proa.dev/kv"
)

// Etcd is the store. It is safe for concurrent use; make one with Embed or Dial.
type Etcd struct {
	member  member
	leases  leases
	hook    func(op, key string) error
	timeout time.Duration
	log     *slog.Logger

	// life is held for reading by every operation that touches the member, and for writing by Close, so
	// that no operation reaches into a backend that is gone. It guards closed.
	life   sync.RWMutex
	closed bool

	// watching guards watches.
	watching sync.Mutex
	watches  map[*watch]struct{}
	// wanted is the revision that Progress wants every watch to reach.
	wanted atomic.Int64
}

// Config says which etcd to use and how. Its zero value is enough but for Dir (Embed) or Endpoints (Dial).
type Config struct {
	// Dir holds the data of an embedded member, laid out as etcd lays it out.
	Dir string

	// Endpoints are the addresses of an etcd that runs elsewhere.
	Endpoints []string
	// CAFile, CertFile and KeyFile authenticate both sides of the connection to Endpoints.
	CAFile, CertFile, KeyFile string

	// Timeout bounds an operation on an etcd elsewhere, whatever its context says; 0 means ten seconds. A snapshot may take longer.
	Timeout time.Duration
	// Log receives etcd's warnings; nil drops them.
	Log *slog.Logger
	// Hook, when not nil, is called before each operation with its name (get, list, watch, progress, fresh,
	// commit, compact) and its first key or prefix. An error it returns is the operation's error, as if
	// the member had not answered. It is a seam for tests and nil in production.
	Hook func(op, key string) error
}

// member is the etcd behind the store: one in this process or one elsewhere. Its answers and errors are
// etcd's own; the store translates them.
type member interface { //nolint:interfacebloat // an etcd, near or far
	// txn makes a transaction. With useReserve it may use some of the room that is kept free.
	txn(ctx context.Context, req *pb.TxnRequest, useReserve bool) (*pb.TxnResponse, error)
	// read answers a range at the present or a past revision.
	read(ctx context.Context, r span) (page, error)
	grant(ctx context.Context, ttl int64) (id int64, err error)
	compact(ctx context.Context, rev int64) error
	// revision returns the present revision, linearizably.
	revision(ctx context.Context) (int64, error)
	// fresh is kv.Watcher's Fresh.
	fresh(ctx context.Context, prefix string) (int64, error)
	// saw tells the member that a caller learned that key was at rev; see freshness.
	saw(key string, rev int64)
	// sawAll tells the same of all keys with the prefix.
	sawAll(prefix string, rev int64)
	open(ctx context.Context, prefix string, after int64) (stream, error)
	healthy(ctx context.Context) error
	// room says why writes that need room are refused, or nil.
	room() error
	size(ctx context.Context) (int64, error)
	snapshot(ctx context.Context, w io.Writer) error
	// interrupt ends operations under way that depend on somebody outside of this process.
	interrupt()
	// shared says that other processes may write, too.
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
	}
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// begin opens an operation. Every successful begin is followed by one end.
func (e *Etcd) begin(ctx context.Context, op, key string) (context.Context, context.CancelFunc, error) {
	if e.hook != nil {
		if err := e.hook(op, key); err != nil {
			return nil, nil, fail(op, key, unavailable{err})
		}
	}
	e.life.RLock()
	if e.closed {
		e.life.RUnlock()
		return nil, nil, fail(op, key, unavailable{errClosed})
	}
	if e.member.shared() {
		// A member in this process bounds its requests itself. One elsewhere may be frozen: the caller's own deadline can be
		// far away.
		ctx, cancel := context.WithTimeout(ctx, e.timeout)
		return ctx, func() { cancel(); e.life.RUnlock() }, nil
	}
	return ctx, e.life.RUnlock, nil
}

// Revision returns the present revision of the store, linearizably.
func (e *Etcd) Revision(ctx context.Context) (int64, error) {
	ctx, end, err := e.begin(ctx, "revision", "")
	if err != nil {
		return 0, err
	}
	defer end()
	rev, err := e.member.revision(ctx)
	return rev, fail("read the revision", "", err)
}

// Fresh is the linearizability of readers that are fed by a watch: the revision that such a reader of prefix
// has to reach to have seen every write that was acknowledged before the call. See freshness.
func (e *Etcd) Fresh(ctx context.Context, prefix string) (int64, error) {
	if e.hook != nil {
		if err := e.hook("fresh", prefix); err != nil {
			return 0, fail("fresh", prefix, unavailable{err})
		}
	}
	rev, err := e.member.fresh(ctx, prefix)
	return rev, fail("fresh", prefix, err)
}

// Healthy says whether the store answers reads and accepts writes.
func (e *Etcd) Healthy(ctx context.Context) error {
	ctx, end, err := e.begin(ctx, "healthy", "")
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	return fail("check", "health", e.member.healthy(ctx))
}

// Room says why writes that need room are refused, or nil when they are not. An etcd elsewhere is asked by Healthy.
func (e *Etcd) Room(ctx context.Context) error {
	_, end, err := e.begin(ctx, "room", "")
	if err != nil {
		return err
	}
	defer end()
	return fail("check", "room", e.member.room())
}

// Size returns the bytes that the database takes on disk.
func (e *Etcd) Size(ctx context.Context) (int64, error) {
	ctx, end, err := e.begin(ctx, "size", "")
	if err != nil {
		return 0, err
	}
	defer end()
	n, err := e.member.size(ctx)
	return n, fail("read", "size", err)
}

// Snapshot writes a copy of the database to w, in the format of `etcdctl snapshot save`: the file followed
// by its SHA-256 sum.
func (e *Etcd) Snapshot(ctx context.Context, w io.Writer) error {
	_, end, err := e.begin(ctx, "snapshot", "")
	if err != nil {
		return err
	}
	defer end()
	return fail("write", "snapshot", e.member.snapshot(ctx, w))
}

// Close waits for the operations under way, ends the watches with an error and stops the member. It does not wait for an etcd
// elsewhere: what is under way there fails. Closing twice is harmless.
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
