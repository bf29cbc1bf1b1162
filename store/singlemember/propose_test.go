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

// held opens a member whose log is not written until it is let.
func held(t *testing.T, cfg Config) (m *Member, let func()) {
	t.Helper()
	m = open(t, cfg)
	gate := make(chan struct{})
	m.log.Storage = &badLog{Storage: m.log.Storage, save: func(_ int64, do func() error) error {
		<-gate
		return do()
	}}
	return m, sync.OnceFunc(func() { close(gate) })
}

// waiting is how many are in the queue.
func (t *writeTurn) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// TestLeavesTheQueue has changes whose context or patience ends before their turn: they are not made, and those after
// them are.
func TestLeavesTheQueue(t *testing.T) {
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
		{"patience", context.WithCancel, etcderrors.ErrTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				m, let := held(t, cfg)
				var all sync.WaitGroup
				all.Go(func() { mustPut(t, m, "first", "1") })
				synctest.Wait()
				for i := range 10 {
					all.Go(func() {
						ctx, cancel := c.end(t.Context())
						defer cancel()
						if _, err := m.Txn(ctx, put(fmt.Sprint("left", i), "1")); !errors.Is(err, c.want) {
							t.Errorf("error %v; want %v", err, c.want)
						}
					})
				}
				time.Sleep(cfg.WriteTimeout - time.Second)
				// These came late enough.
				for i := range 10 {
					all.Go(func() { mustPut(t, m, fmt.Sprint("stayed", i), "1") })
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if n := m.writeTurn.waiting(); n != 10 {
					t.Errorf("%d wait; want 10", n)
				}
				let()
				all.Wait()
				mustPut(t, m, "last", "1")
				if err := m.Settle(t.Context()); err != nil {
					t.Error(err)
				}
				if got := pairs(t, m.KV(), 0); len(got) != 12 || m.KV().Rev() != 13 {
					t.Errorf("there is %v at revision %d", got, m.KV().Rev())
				}
				shut(t, m)
			})
		})
	}
}

// TestTooMany fills the queue.
func TestTooMany(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m, let := held(t, cfg)
		var all sync.WaitGroup
		all.Go(func() { mustPut(t, m, "first", "1") })
		synctest.Wait()
		for range maxQueued {
			all.Go(func() {
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
		let()
		all.Wait()
		mustPut(t, m, "last", "1")
		if got := pairs(t, m.KV(), 0); len(got) != 2 {
			t.Errorf("there is %v", got)
		}
		shut(t, m)
	})
}

// TestEndedContext is refused before it has a place.
func TestEndedContext(t *testing.T) {
	m := opened(t, config(t.TempDir()))
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

// TestBlockedLog has a log that neither writes nor fails, and fails later. Those who are in what it writes leave, too,
// when their time is over.
func TestBlockedLog(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		mustPut(t, m, "first", "1")
		gate := make(chan struct{})
		m.log.Storage = &badLog{Storage: m.log.Storage, save: func(n int64, do func() error) error {
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
				t.Errorf("who writes the log: %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			rest.Go(func() {
				if _, err := m.Txn(t.Context(), put("b", "1")); !errors.Is(err, etcderrors.ErrTimeout) {
					t.Errorf("who waits: %v", err)
				}
			})
		}
		rest.Wait()
		for range 20 {
			rest.Go(func() {
				if _, err := m.Txn(t.Context(), put("c", "1")); !errors.Is(err, ErrBroken) {
					t.Errorf("who still waits: %v", err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		leader.Wait()
		rest.Wait()
		refuses(t, m)
		shut(t, m)
	})
}

// TestSettle has to wait for the change that is written, and for the one that is applied.
func TestSettle(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m, let := held(t, cfg)
		var all sync.WaitGroup
		var done atomic.Bool
		all.Go(func() {
			mustPut(t, m, "a", "1")
			done.Store(true)
		})
		synctest.Wait()
		settled := false
		all.Go(func() {
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
		let()
		all.Wait()
		// The next change is in the log and being applied.
		gate, there := make(chan struct{}), make(chan struct{})
		m.applier = &badApplier{UberApplier: m.applier, do: func(_ int64, do func() *apply.Result) *apply.Result {
			close(there)
			<-gate
			return do()
		}}
		all.Go(func() { mustPut(t, m, "b", "1") })
		<-there
		all.Go(func() {
			if err := m.Settle(t.Context()); err != nil {
				t.Error(err)
			}
			if m.KV().Rev() != 3 {
				t.Error("settled before the change was applied")
			}
		})
		// A wait for a mutex is nothing that synctest.Wait knows.
		for range 1000 {
			runtime.Gosched()
		}
		close(gate)
		all.Wait()
		shut(t, m)
	})
}

// TestTurnIsNeverLost ends contexts at about the time when the turn is passed on.
func TestTurnIsNeverLost(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1000
	m := opened(t, cfg)
	stop := make(chan struct{})
	time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
	var all sync.WaitGroup
	var ok, ended atomic.Int64
	for w := range 16 {
		all.Go(func() {
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
	all.Wait()
	mustPut(t, m, "last", "1")
	m.writeTurn.mu.Lock()
	defer m.writeTurn.mu.Unlock()
	if m.writeTurn.taken || len(m.writeTurn.queue) > 0 || ok.Load() == 0 || ended.Load() == 0 {
		t.Errorf("taken %v, %d in the queue, %d made, %d ended", m.writeTurn.taken, len(m.writeTurn.queue), ok.Load(), ended.Load())
	}
}

// TestPassOnMeetsEnd has the turn passed on to one whose context has ended: it uses it.
func TestPassOnMeetsEnd(t *testing.T) {
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
		var all sync.WaitGroup
		var lead bool
		var err error
		all.Go(func() { lead, err = q.wait(ctx, p, time.Minute) })
		all.Go(cancel)
		all.Go(q.passOn)
		all.Wait()
		if lead == (err != nil) || q.taken != lead || len(q.queue) > 0 {
			t.Fatalf("leads %v with error %v; the turn is taken: %v", lead, err, q.taken)
		}
	}
}

// TestGather takes what fits, and no more.
func TestGather(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m, let := held(t, cfg)
		var all sync.WaitGroup
		value := string(make([]byte, 1<<20))
		for i := range 20 {
			all.Go(func() { mustPut(t, m, fmt.Sprint(i), value) })
		}
		synctest.Wait()
		let()
		all.Wait()
		if n := m.log.Storage.(*badLog).n.Load(); n < 4 || n > 7 {
			t.Errorf("the log was written %d times", n)
		}
		if got := pairs(t, m.KV(), 0); len(got) != 20 || m.KV().Rev() != 21 {
			t.Errorf("there are %d keys at revision %d", len(got), m.KV().Rev())
		}
		shut(t, m)
	})
}
