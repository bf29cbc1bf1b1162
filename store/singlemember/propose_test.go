package singlemember

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
)

// openWithBlockedLog opens a member whose log is not written until unblock is called.
func openWithBlockedLog(t *testing.T, cfg Config) (m *Member, unblock func()) {
	t.Helper()
	m = open(t, cfg)
	gate := make(chan struct{})
	m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(_ int64, do func() error) error {
		<-gate
		return do()
	}}
	return m, sync.OnceFunc(func() { close(gate) })
}

// queueLength returns how many proposals are in the queue.
func (t *writeTurn) queueLength() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// TestQueuedProposalsTimeOut checks that changes whose context or write timeout ends while they are queued are not made,
// and that later changes are.
func TestQueuedProposalsTimeOut(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		{"canceled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, context.Canceled},
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, context.DeadlineExceeded},
		{"write timeout", context.WithCancel, etcderrors.ErrTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				m, unblock := openWithBlockedLog(t, cfg)
				var wg sync.WaitGroup
				wg.Go(func() { mustPut(t, m, "first", "1") })
				synctest.Wait()
				for i := range 10 {
					wg.Go(func() {
						ctx, cancel := c.end(t.Context())
						defer cancel()
						if _, err := m.Txn(ctx, put(fmt.Sprint("left", i), "1")); !errors.Is(err, c.want) {
							t.Errorf("error %v; want %v", err, c.want)
						}
					})
				}
				time.Sleep(cfg.WriteTimeout - time.Second)
				// The write timeout of these ends after the log is unblocked.
				for i := range 10 {
					wg.Go(func() { mustPut(t, m, fmt.Sprint("stayed", i), "1") })
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if n := m.writeTurn.queueLength(); n != 10 {
					t.Errorf("%d are queued; want 10", n)
				}
				unblock()
				wg.Wait()
				mustPut(t, m, "last", "1")
				if err := m.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				if got := pairs(t, m.KV(), 0); len(got) != 12 || m.KV().Rev() != 13 {
					t.Errorf("there is %v at revision %d", got, m.KV().Rev())
				}
				closeMember(t, m)
			})
		})
	}
}

// TestQueueIsFull checks that changes are refused while the queue is full, and accepted afterwards.
func TestQueueIsFull(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m, unblock := openWithBlockedLog(t, cfg)
		var wg sync.WaitGroup
		wg.Go(func() { mustPut(t, m, "first", "1") })
		synctest.Wait()
		for range maxQueued {
			wg.Go(func() {
				if err := m.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := m.Txn(t.Context(), put("many", "1")); !errors.Is(err, etcderrors.ErrTooManyRequests) {
			t.Errorf("error %v", err)
		}
		if err := m.Settle(t.Context()); !errors.Is(err, etcderrors.ErrTooManyRequests) {
			t.Errorf("error %v", err)
		}
		unblock()
		wg.Wait()
		mustPut(t, m, "last", "1")
		if got := pairs(t, m.KV(), 0); len(got) != 2 {
			t.Errorf("there is %v", got)
		}
		closeMember(t, m)
	})
}

// TestCanceledContextIsNotProposed checks that a change whose context is already canceled writes no entry.
func TestCanceledContextIsNotProposed(t *testing.T) {
	m := openWithCleanup(t, config(t.TempDir()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	at := m.AppliedIndex()
	if _, err := m.Txn(ctx, put("a", "1")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	mustPut(t, m, "b", "1")
	if now := m.AppliedIndex(); now != at+1 {
		t.Errorf("%d entries were applied", now-at)
	}
}

// TestBlockedLog blocks the log, which fails later. Changes that are part of the blocked write must return, too, when
// their timeout ends.
func TestBlockedLog(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		mustPut(t, m, "first", "1")
		gate := make(chan struct{})
		m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
			if n == 1 {
				return do()
			}
			<-gate
			return errDisk
		}}
		mustPut(t, m, "second", "1")
		var leader, rest sync.WaitGroup
		leader.Go(func() {
			if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) {
				t.Errorf("the writer of the log: %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			rest.Go(func() {
				if _, err := m.Txn(t.Context(), put("b", "1")); !errors.Is(err, etcderrors.ErrTimeout) {
					t.Errorf("a waiting writer: %v", err)
				}
			})
		}
		rest.Wait()
		for range 20 {
			rest.Go(func() {
				if _, err := m.Txn(t.Context(), put("c", "1")); !errors.Is(err, ErrBroken) {
					t.Errorf("a writer that still waits: %v", err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		leader.Wait()
		rest.Wait()
		expectBroken(t, m)
		closeMember(t, m)
	})
}

// TestSettle checks that Settle waits for a change that is being written to the log, and for one that is being applied.
func TestSettle(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m, unblock := openWithBlockedLog(t, cfg)
		var wg sync.WaitGroup
		var done atomic.Bool
		wg.Go(func() {
			mustPut(t, m, "a", "1")
			done.Store(true)
		})
		synctest.Wait()
		settled := false
		wg.Go(func() {
			if err := m.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			if settled = true; m.KV().Rev() != 2 {
				t.Error("settled before the change was made")
			}
		})
		synctest.Wait()
		if settled || done.Load() {
			t.Error("settled before the change was written")
		}
		unblock()
		wg.Wait()
		// The next change is in the log and being applied.
		gate, applying := make(chan struct{}), make(chan struct{})
		m.applier = &failingApplier{UberApplier: m.applier, do: func(_ int64, do func() *apply.Result) *apply.Result {
			close(applying)
			<-gate
			return do()
		}}
		wg.Go(func() { mustPut(t, m, "b", "1") })
		<-applying
		wg.Go(func() {
			if err := m.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			if m.KV().Rev() != 3 {
				t.Error("settled before the change was applied")
			}
		})
		// synctest.Wait does not know goroutines that wait for a mutex.
		for range 1000 {
			runtime.Gosched()
		}
		close(gate)
		wg.Wait()
		closeMember(t, m)
	})
}

// TestWriteTurnIsNeverLost cancels contexts at about the time when the turn to write is passed to their changes.
func TestWriteTurnIsNeverLost(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1000
	m := openWithCleanup(t, cfg)
	stop := make(chan struct{})
	time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
	var wg sync.WaitGroup
	var ok, ended atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
					cancel()
				}()
				if _, err := m.Txn(ctx, put(fmt.Sprint(w), fmt.Sprint(i))); err == nil {
					ok.Add(1)
				} else if ended.Add(1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustPut(t, m, "last", "1")
	m.writeTurn.mu.Lock()
	defer m.writeTurn.mu.Unlock()
	if m.writeTurn.taken || len(m.writeTurn.queue) > 0 || ok.Load() == 0 || ended.Load() == 0 {
		t.Errorf("taken %v, %d in the queue, %d made, %d ended", m.writeTurn.taken, len(m.writeTurn.queue), ok.Load(), ended.Load())
	}
}

// TestWriteTurnPassedToCanceledContext passes the turn on while the context of the next proposal ends: either that proposal
// has the turn, or it has an error and the turn is free.
func TestWriteTurnPassedToCanceledContext(t *testing.T) {
	for range 1000 {
		var q writeTurn
		if lead, err := q.take(&proposal{}); !lead || err != nil {
			t.Fatal(lead, err)
		}
		p := &proposal{}
		if lead, err := q.take(p); lead || err != nil {
			t.Fatal(lead, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var lead bool
		var err error
		wg.Go(func() { lead, err = q.wait(ctx, p, time.Minute) })
		wg.Go(cancel)
		wg.Go(q.passOn)
		wg.Wait()
		if lead == (err != nil) || q.taken != lead || len(q.queue) > 0 {
			t.Fatalf("leads %v with error %v; the turn is taken: %v", lead, err, q.taken)
		}
	}
}

// TestProposalBatchSize checks that queued proposals are written together, up to a size.
func TestProposalBatchSize(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m, unblock := openWithBlockedLog(t, cfg)
		var wg sync.WaitGroup
		value := string(make([]byte, 1<<20))
		for i := range 20 {
			wg.Go(func() { mustPut(t, m, fmt.Sprint(i), value) })
		}
		synctest.Wait()
		unblock()
		wg.Wait()
		if n := m.log.Storage.(*failingLog).n.Load(); n < 4 || n > 7 {
			t.Errorf("the log was written %d times", n)
		}
		if got := pairs(t, m.KV(), 0); len(got) != 20 || m.KV().Rev() != 21 {
			t.Errorf("there are %d keys at revision %d", len(got), m.KV().Rev())
		}
		closeMember(t, m)
	})
}
