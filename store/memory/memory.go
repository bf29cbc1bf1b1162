// Package memory is a store in the memory of its process. It behaves like the etcd of package store and replaces it
// where data need not survive: in tests, especially in those with the virtual time of testing/synctest, and in
// temporary clusters.
//
// It has no goroutines and does no input or output. A watch runs on the goroutine of its caller, and keys that expire
// share one timer. Values are copied when they are written; values that are returned are shared and must not be
// changed.
package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/btree"

	"proa.dev/kv"
)

// Config configures a store. Its zero value is usable.
type Config struct {
	// Hook, if not nil, is called before each operation with its name (get, list, watch, progress, fresh, commit,
	// compact, revision, healthy, size) and its first key or prefix. If it returns an error, the operation fails as if
	// the store had not answered. It is for tests.
	Hook func(op, key string) error
}

// Store is the store. It is safe for concurrent use; make one with New.
type Store struct {
	hook  func(op, key string) error
	marks marks

	// mu guards the fields below, and what they point to.
	mu     sync.RWMutex
	closed bool
	// rev is the revision of the last change. It starts at 1, as in an empty etcd.
	rev int64
	// compacted is the oldest revision that can still be read.
	compacted int64
	// keys has an item for every key that exists or whose history is kept, in the order of keys.
	keys *btree.BTreeG[*item]
	// log has every change since compacted, in the order of revisions.
	log []kv.Change
	// size counts the bytes of the keys and values that items hold.
	size int64
	// watches has the running watches, in the order in which they were started.
	watches []*watch

	// expiries has the expiry of every key with a TTL, in the order of time.
	expiries *btree.BTreeG[expiry]
	// timer fires at the first expiry, at the time timerAt; it is nil if it is not set.
	timer   *time.Timer
	timerAt time.Time
	// timers counts the timer while it is set or its function runs.
	timers sync.WaitGroup
}

var (
	_ kv.Reader    = (*Store)(nil)
	_ kv.Watcher   = (*Store)(nil)
	_ kv.Committer = (*Store)(nil)
)

var errClosed = errors.New("the store is closed")

// degree is the degree of the B-trees.
const degree = 32

// New returns an empty store.
func New(cfg Config) *Store {
	return &Store{
		hook:     cfg.Hook,
		rev:      1,
		keys:     btree.NewG(degree, func(a, b *item) bool { return a.key < b.key }),
		expiries: btree.NewG(degree, expiry.before),
	}
}

// enter begins an operation. It is called without the lock, because the hook may block.
func (s *Store) enter(ctx context.Context, op, key string) error {
	if s.hook != nil {
		if err := s.hook(op, key); err != nil {
			return unavailable(op, key, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return unavailable(op, key, err)
	}
	return nil
}

// read begins an operation that changes no key. If it succeeds, the caller must call s.mu.RUnlock.
func (s *Store) read(ctx context.Context, op, key string) error {
	if err := s.enter(ctx, op, key); err != nil {
		return err
	}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return unavailable(op, key, errClosed)
	}
	return nil
}

// write begins an operation that may change keys. If it succeeds, the caller must call s.mu.Unlock.
func (s *Store) write(ctx context.Context, op, key string) error {
	if err := s.enter(ctx, op, key); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return unavailable(op, key, errClosed)
	}
	return nil
}

// Revision returns the current revision of the store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.read(ctx, "revision", ""); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	return s.rev, nil
}

// Healthy returns an error if the store does not answer.
func (s *Store) Healthy(ctx context.Context) error {
	if err := s.read(ctx, "healthy", ""); err != nil {
		return err
	}
	s.mu.RUnlock()
	return nil
}

// Room returns nil: a store in memory does not refuse writes for lack of space.
func (s *Store) Room(context.Context) error { return nil }

// Size returns the bytes of all keys and values, including the history.
func (s *Store) Size(ctx context.Context) (int64, error) {
	if err := s.read(ctx, "size", ""); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	return s.size, nil
}

// Close ends the watches with an error and stops the expiry of keys. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.stopTimer()
	for _, w := range s.watches {
		w.wake.Send()
	}
	s.mu.Unlock()
	s.timers.Wait()
	return nil
}

// withOperation adds the operation and its key to an error.
func withOperation(op, key string, err error) error {
	if key != "" {
		op += " " + key
	}
	return fmt.Errorf("%s: %w", op, err)
}

// unavailable returns the error of an operation that the store did not answer.
func unavailable(op, key string, err error) error {
	if errors.Is(err, kv.ErrUnavailable) {
		return withOperation(op, key, err)
	}
	return withOperation(op, key, fmt.Errorf("%w: %w", kv.ErrUnavailable, err))
}
