package singlemember

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// sameAsLog checks that the database of a member matches its log, by rebuilding it from the log, which has to be
// complete.
func sameAsLog(t *testing.T, m *Member) {
	t.Helper()
	cfg := m.cfg
	cfg.Dir = crash(t, m.Backend(), cfg.Dir)
	remove(t, datadir.ToBackendFileName(cfg.Dir))
	other := open(t, cfg)
	defer shut(t, other)
	if a, b := m.KV().Rev(), other.KV().Rev(); a != b {
		t.Errorf("the member is at revision %d; its log makes it %d", a, b)
	}
	if a, b := pairs(t, m.KV(), 0), pairs(t, other.KV(), 0); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the member has %v; its log makes it %v", a, b)
	}
}

// broken breaks a member during concurrent writes, and returns the acknowledged ones.
func broken(t *testing.T, m *Member, round int) *ledger {
	t.Helper()
	l := newLedger()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 100 {
				if err := l.write(t.Context(), m, fmt.Sprintf("%d/%d-%d", round, w, i), true); err != nil {
					if !errors.Is(err, ErrBroken) {
						t.Errorf("error %v", err)
					}
					return
				}
			}
			t.Error("a writer was not told")
		})
	}
	all.Wait()
	return l
}

// TestMended breaks a log several times, and checks that it is reopened.
func TestMended(t *testing.T) {
	for name, breakage := range breakages {
		if strings.Contains(name, "entry") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			cfg := config(t.TempDir())
			if !strings.Contains(name, "snapshot") {
				cfg.SnapshotEvery = 1 << 30
			}
			synctest.Test(t, func(t *testing.T) {
				m := open(t, cfg)
				mustPut(t, m, "first", "1")
				var told []*ledger
				for round := range 4 {
					breakage(m, int64(round+1))
					told = append(told, broken(t, m, round))
					refuses(t, m)
					time.Sleep(reopenInterval)
					if round%2 == 0 {
						if err := m.Settle(t.Context()); err != nil {
							t.Errorf("settle: %v", err)
						}
					}
					mustPut(t, m, fmt.Sprint("after", round), "1")
				}
				for _, l := range told {
					l.check(t, ours{m})
				}
				if cfg.SnapshotEvery > 1000 {
					sameAsLog(t, m)
				}
				has, rev := fmt.Sprint(pairs(t, m.KV(), 0)), m.KV().Rev()
				shut(t, m)
				m = open(t, cfg)
				if now := fmt.Sprint(pairs(t, m.KV(), 0)); now != has || m.KV().Rev() != rev {
					t.Errorf("after a start there is %s at revision %d; before it was %s at %d", now, m.KV().Rev(), has, rev)
				}
				shut(t, m)
			})
		})
	}
}

// TestMendFails uses a log that cannot be reopened at first, and checks how often that is tried.
func TestMendFails(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		mustPut(t, m, "first", "1")
		breakages["the log is not written"](m, 1)
		l := broken(t, m, 0)
		// The log is not to be found for a while.
		away := filepath.Join(t.TempDir(), "wal")
		if err := os.Rename(datadir.ToWALDir(cfg.Dir), away); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(reopenInterval)
			refuses(t, m)
		}
		if err := os.Rename(away, datadir.ToWALDir(cfg.Dir)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reopenInterval)
		mustPut(t, m, "last", "1")
		l.check(t, ours{m})
		shut(t, m)
	})
}

// TestLost checks that the log is not reopened if the database does not match it.
func TestLost(t *testing.T) {
	for name, breakage := range breakages {
		if !strings.Contains(name, "entry") {
			continue
		}
		cfg := config(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			m := open(t, cfg)
			mustPut(t, m, "first", "1")
			breakage(m, 3)
			l := broken(t, m, 0)
			for range 3 {
				time.Sleep(time.Minute)
				refuses(t, m)
			}
			shut(t, m)
			m = open(t, cfg)
			l.check(t, ours{m})
			shut(t, m)
		})
	}
}

// TestLostWhileMending has an entry that was written but not applied, and is not applied when the log is read again,
// either. What comes after it must not be applied without it.
func TestLostWhileMending(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		mustPut(t, m, "first", "1")
		breakages["the log is written and says it is not"](m, 1)
		if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) {
			t.Errorf("error %v", err)
		}
		m.applier = &badApplier{UberApplier: m.applier, do: func(n int64, do func() *apply.Result) *apply.Result {
			if n == 1 {
				panic(errDisk)
			}
			return do()
		}}
		for range 3 {
			time.Sleep(reopenInterval)
			if _, err := m.Txn(t.Context(), put("b", "1")); err == nil {
				// It may have helped to try again, but then it has to be right.
				sameAsLog(t, m)
			}
		}
		shut(t, m)
		m = open(t, cfg)
		sameAsLog(t, m)
		shut(t, m)
	})
}

// TestPartialWrite has a file system that takes only a part of a write, which ends at a sector. The log is mended, or
// can be after a start, and has what was acknowledged. The limit by which this is done is one of the process, so it has
// one of its own: go test takes notes in a file, too.
func TestPartialWrite(t *testing.T) {
	if _, own := inOwnProcess(t, "1"); !own {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	for sectors := range 16 {
		cfg := config(t.TempDir())
		// The database is not written meanwhile: etcd ends the process when that fails.
		cfg.BatchInterval, cfg.SnapshotEvery = time.Hour, 1<<30
		m := open(t, cfg)
		mustPut(t, m, "first", strings.Repeat("x", 700))
		data, err := os.ReadFile(logFiles(t, cfg.Dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		used := len(bytes.TrimRight(data, "\x00"))
		restore := limitFiles(t, uint64(used/512+1+sectors)*512)
		l := newLedger()
		for n := 0; n < 20 && err == nil; n++ {
			err = l.write(t.Context(), m, fmt.Sprint(n, strings.Repeat("y", 1000)), true)
		}
		restore()
		if !errors.Is(err, ErrBroken) {
			t.Errorf("error %v", err)
		}
		// It is time to try again.
		m.writeTurn.mu.Lock()
		m.writeTurn.lastAttempt = time.Time{}
		m.writeTurn.mu.Unlock()
		mustPut(t, m, "after", "1")
		l.check(t, ours{m})
		sameAsLog(t, m)
		shut(t, m)
		m = open(t, cfg)
		l.check(t, ours{m})
		if got := pairs(t, m.KV(), 0); got["first"].version != 1 || got["after"].version != 1 {
			t.Errorf("%d sectors: the first or the last is not there", sectors)
		}
		shut(t, m)
	}
}

// limitFiles bounds the size of the files that this process writes.
func limitFiles(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
	}
}

// TestLostIsTold checks that Config.OnFatal is called for disk errors other than a full disk.
func TestLostIsTold(t *testing.T) {
	cfg := config(t.TempDir())
	var told []error
	cfg.OnFatal = func(err error) { told = append(told, err) }
	m := opened(t, cfg)
	mustPut(t, m, "first", "1")
	m.log.Storage = &badLog{Storage: m.log.Storage, save: func(int64, func() error) error { return syscall.EIO }}
	if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v", err)
	}
	if len(told) != 1 || !errors.Is(told[0], syscall.EIO) {
		t.Errorf("told %v", told)
	}
	m.writeTurn.lastAttempt = m.writeTurn.lastAttempt.Add(-reopenInterval)
	if err := m.Settle(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("later: %v", err)
	}
}
