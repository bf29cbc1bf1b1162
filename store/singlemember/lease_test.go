package singlemember

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// grantWithKey grants a lease and puts a key with it.
func grantWithKey(t *testing.T, m *Member, ttl int64, key string) int64 {
	t.Helper()
	l, err := m.Grant(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	if l.ID <= 0 || l.TTL != ttl {
		t.Errorf("granted %v", l)
	}
	if _, err := m.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{putOp(key, "1", l.ID)}}); err != nil {
		t.Fatal(err)
	}
	return l.ID
}

// TestLeasesExpire checks that leases expire in time with their keys, also after a restart.
func TestLeasesExpire(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		for i := range 30 {
			grantWithKey(t, m, 1, fmt.Sprint("short", i))
		}
		grantWithKey(t, m, 60, "later")
		grantWithKey(t, m, longTTL, "long")
		mustPut(t, m, "forever", "1")
		time.Sleep(500 * time.Millisecond)
		if got := pairs(t, m.KV(), 0); len(got) != 33 {
			t.Errorf("after half a second there are %d keys", len(got))
		}
		time.Sleep(2 * time.Second)
		if got := pairs(t, m.KV(), 0); len(got) != 3 || len(m.Leases()) != 2 {
			t.Errorf("there is %v and the leases %v", got, m.Leases())
		}
		closeMember(t, m)
		m = open(t, cfg)
		time.Sleep(50 * time.Second)
		if got := pairs(t, m.KV(), 0); len(got) != 3 {
			t.Errorf("after the start there is %v", got)
		}
		time.Sleep(15 * time.Second)
		if got := pairs(t, m.KV(), 0); len(got) != 2 || got["long"].value == "" || len(m.Leases()) != 1 {
			t.Errorf("in the end there is %v and the leases %v", got, m.Leases())
		}
		closeMember(t, m)
	})
}

// TestCloseWhileLeasesExpire closes a member while its leases expire. synctest checks that no goroutine is left.
func TestCloseWhileLeasesExpire(t *testing.T) {
	for i := range 12 {
		cfg := config(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			m := open(t, cfg)
			for i := range 20 {
				grantWithKey(t, m, 1, fmt.Sprint(i))
			}
			time.Sleep(time.Second + time.Duration(i)*50*time.Millisecond)
			for range i * 10 {
				runtime.Gosched()
			}
			closeMember(t, m)
			if files := openFiles(t, cfg.Dir); len(files) > 0 {
				t.Errorf("open after the close: %s", files)
			}
			m = open(t, cfg)
			if got := pairs(t, m.KV(), 0); len(got) != len(m.Leases()) {
				t.Errorf("there are %d keys and %d leases", len(got), len(m.Leases()))
			}
			time.Sleep(3 * time.Second)
			if got := pairs(t, m.KV(), 0); len(got) > 0 || len(m.Leases()) > 0 {
				t.Errorf("there is %v and the leases %v", got, m.Leases())
			}
			closeMember(t, m)
		})
	}
}

// TestLeasesOfBrokenMember checks that leases expire when the log can be written again, and that they do not block Close.
func TestLeasesOfBrokenMember(t *testing.T) {
	for _, final := range []bool{false, true} {
		cfg := config(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			m := open(t, cfg)
			grantWithKey(t, m, 1, "a")
			mustPut(t, m, "first", "1")
			tries := &failingLog{Storage: m.log.Storage, save: func(int64, func() error) error { return errDisk }}
			// The lock is needed because an expiring lease may already use the log.
			m.writeTurn.mu.Lock()
			m.log.Storage, m.writeTurn.mustRestart = tries, final
			m.writeTurn.mu.Unlock()
			time.Sleep(time.Minute)
			if n := tries.n.Load(); n != 1 {
				t.Errorf("the log was tried %d times", n)
			}
			if got := pairs(t, m.KV(), 0); (got["a"].value == "1") != final || got["first"].value != "1" {
				t.Errorf("final %v: there is %v", final, got)
			}
			closeMember(t, m)
			m = open(t, cfg)
			time.Sleep(3 * time.Second)
			if got := pairs(t, m.KV(), 0); len(got) != 1 {
				t.Errorf("after a start there is %v", got)
			}
			closeMember(t, m)
		})
	}
}

// TestNoGoroutineAfterClose checks that no goroutine is left after Close.
func TestNoGoroutineAfterClose(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 10 {
		cfg := config(t.TempDir())
		m := open(t, cfg)
		grantWithKey(t, m, 1, "a")
		runWriters(t.Context(), t, m, newAckedWrites(), 8, 10)
		if err := m.Compact(t.Context(), m.KV().Rev()); err != nil {
			t.Error(err)
		}
		closeMember(t, m)
		if files := openFiles(t, cfg.Dir); len(files) > 0 {
			t.Errorf("open after the close: %s", files)
		}
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}
