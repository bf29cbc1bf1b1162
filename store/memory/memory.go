// Package memory is a store that lives in the memory of its process and ends with it. It keeps every promise that package
// store keeps with etcd, and so stands in for it where nothing has to last: in tests, above all in those that run on the
// virtual time of testing/synctest, and in clusters made to be thrown away.
//
// It owns no goroutine and does no input or output. A watch runs on the goroutine of its caller, and keys that expire share
// one timer. Values are copied on their way in and shared on their way out: who reads one may not change it.
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

// Config says how the store behaves. Its zero value is enough.
type Config struct {
	// Hook, when not nil, is called before each operation with its name (get, list, watch, progress, fresh, commit,
	// compact, revision, healthy, size) and its first key or prefix. An error it returns is the operation's error, as if
	// the store had not answered. It is a seam for tests.
	Hook func(op, key string) error
}

// Store is the store. It is safe for concurrent use; make one with New.
type Store struct {
	hook  func(op, key string) error
	marks marks

	// mu guards the fields below, and what they point to.
	mu     sync.RWMutex
	closed bool
	// rev is the revision of the last change. It begins where that of an empty etcd does.
	rev int64
	// compacted is the oldest revision that can still be read.
	compacted int64
	// keys has an item for every key that exists or whose history is kept, in their order.
	keys *btree.BTreeG[*item]
	// log has every change since compacted, in the order of revisions.
	log []kv.Change
	// size counts the bytes of the keys and values that items hold.
	size int64
	// watches are those under way, in the order in which they began.
	watches []*watch

	// expiries has the end of every key that has one, in the order of time.
	expiries *btree.BTreeG[expiry]
	// alarm rings at the first of expiries, which is at rings; it is nil while it is not set.
	alarm *time.Timer
	rings time.Time
	// ringing counts the alarm while it is set or being answered.
	ringing sync.WaitGroup
}

var (
	_ kv.Reader    = (*Store)(nil)
	_ kv.Watcher   = (*Store)(nil)
	_ kv.Committer = (*Store)(nil)
)

var errClosed = errors.New("the store is closed")

// degree is the width of the trees, a balance between the moves within a node and the steps between nodes.
const degree = 32

// New makes an empty store.
func New(cfg Config) *Store {
	return &Store{
		hook:     cfg.Hook,
		rev:      1,
		keys:     btree.NewG(degree, func(a, b *item) bool { return a.key < b.key }),
		expiries: btree.NewG(degree, expiry.before),
	}
}

// enter is what every operation does first. It takes no lock, because the hook may take its time.
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

// read opens an operation that changes no key. Every successful read is followed by one s.mu.RUnlock.
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

// write opens an operation that may change anything. Every successful write is followed by one s.mu.Unlock.
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

// Revision returns the present revision of the store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.read(ctx, "revision", ""); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	return s.rev, nil
}

// Healthy says whether the store answers.
func (s *Store) Healthy(ctx context.Context) error {
	if err := s.read(ctx, "healthy", ""); err != nil {
		return err
	}
	s.mu.RUnlock()
	return nil
}

// Room is there as long as there is memory.
func (s *Store) Room(context.Context) error { return nil }

// Size returns the bytes of all keys and values, those of the history included.
func (s *Store) Size(ctx context.Context) (int64, error) {
	if err := s.read(ctx, "size", ""); err != nil {
		return 0, err
	}
	defer s.mu.RUnlock()
	return s.size, nil
}

// Close ends the watches with an error and lets no key expire any more. When it returns, nothing of the store runs. Closing
// twice is harmless.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.silence()
	for _, w := range s.watches {
		w.poke()
	}
	s.mu.Unlock()
	s.ringing.Wait()
	return nil
}

// about names the operation and its key in front of an error.
func about(op, key string, err error) error {
	if key != "" {
		op += " " + key
	}
	return fmt.Errorf("%s: %w", op, err)
}

// unavailable is the error of an operation that the store did not answer.
func unavailable(op, key string, err error) error {
	if errors.Is(err, kv.ErrUnavailable) {
		return about(op, key, err)
	}
	return about(op, key, fmt.Errorf("%w: %w", kv.ErrUnavailable, err))
}
