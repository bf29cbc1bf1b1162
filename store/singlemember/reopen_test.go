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
	cfg.Dir = crashCopy(t, m.Backend(), cfg.Dir)
	remove(t, datadir.ToBackendFileName(cfg.Dir))
	other := open(t, cfg)
	defer closeMember(t, other)
	if a, b := m.KV().Rev(), other.KV().Rev(); a != b {
		t.Errorf("the member is at revision %d; its log makes it %d", a, b)
	}
	if a, b := pairs(t, m.KV(), 0), pairs(t, other.KV(), 0); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("the member has %v; its log makes it %v", a, b)
	}
}

// writeUntilBroken writes concurrently until every writer gets ErrBroken, and returns the acknowledged writes.
func writeUntilBroken(t *testing.T, m *Member, round int) *ackedWrites {
	t.Helper()
	l := newAckedWrites()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				if err := l.write(t.Context(), m, fmt.Sprintf("%d/%d-%d", round, w, i), true); err != nil {
					if !errors.Is(err, ErrBroken) {
						t.Errorf("error %v", err)
					}
					return
				}
			}
			t.Error("a writer did not get ErrBroken")
		})
	}
	wg.Wait()
	return l
}

// TestLogIsReopened breaks a log several times, and checks that it is reopened.
func TestLogIsReopened(t *testing.T) {
	for name, failure := range failureModes {
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
				var acked []*ackedWrites
				for round := range 4 {
					failure(m, int64(round+1))
					acked = append(acked, writeUntilBroken(t, m, round))
					expectBroken(t, m)
					time.Sleep(reopenInterval)
					if round%2 == 0 {
						if err := m.Settle(t.Context()); err != nil {
							t.Errorf("settle: %v", err)
						}
					}
					mustPut(t, m, fmt.Sprint("after", round), "1")
				}
				for _, l := range acked {
					l.check(t, proaMember{m})
				}
				if cfg.SnapshotEvery > 1000 {
					sameAsLog(t, m)
				}
				before, rev := fmt.Sprint(pairs(t, m.KV(), 0)), m.KV().Rev()
				closeMember(t, m)
				m = open(t, cfg)
				if now := fmt.Sprint(pairs(t, m.KV(), 0)); now != before || m.KV().Rev() != rev {
					t.Errorf("after a start there is %s at revision %d; before it was %s at %d", now, m.KV().Rev(), before, rev)
				}
				closeMember(t, m)
			})
		})
	}
}

// TestReopenIsRetried checks that a log that cannot be reopened at first is reopened later.
func TestReopenIsRetried(t *testing.T) {
	cfg := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		mustPut(t, m, "first", "1")
		failureModes["the log is not written"](m, 1)
		l := writeUntilBroken(t, m, 0)
		// The folder of the log is missing for a while.
		movedLog := filepath.Join(t.TempDir(), "wal")
		if err := os.Rename(datadir.ToWALDir(cfg.Dir), movedLog); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(reopenInterval)
			expectBroken(t, m)
		}
		if err := os.Rename(movedLog, datadir.ToWALDir(cfg.Dir)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reopenInterval)
		mustPut(t, m, "last", "1")
		l.check(t, proaMember{m})
		closeMember(t, m)
	})
}

// TestLogIsNotReopenedWhenDatabaseDiffers checks that the log is not reopened if the database does not match it.
func TestLogIsNotReopenedWhenDatabaseDiffers(t *testing.T) {
	for name, failure := range failureModes {
		if !strings.Contains(name, "entry") {
			continue
		}
		cfg := config(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			m := open(t, cfg)
			mustPut(t, m, "first", "1")
			failure(m, 3)
			l := writeUntilBroken(t, m, 0)
			for range 3 {
				time.Sleep(time.Minute)
				expectBroken(t, m)
			}
			closeMember(t, m)
			m = open(t, cfg)
			l.check(t, proaMember{m})
			closeMember(t, m)
		})
	}
}

// TestUnappliedEntryDuringReopen makes applying an entry fail that was written but not yet applied, when the log is read
// again. Later entries must not be applied without it.
func TestUnappliedEntryDuringReopen(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		mustPut(t, m, "first", "1")
		failureModes["the log is written and returns an error"](m, 1)
		if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) {
			t.Errorf("error %v", err)
		}
		m.applier = &failingApplier{UberApplier: m.applier, do: func(n int64, do func() *apply.Result) *apply.Result {
			if n == 1 {
				panic(errDisk)
			}
			return do()
		}}
		for range 3 {
			time.Sleep(reopenInterval)
			if _, err := m.Txn(t.Context(), put("b", "1")); err == nil {
				// A retry may succeed, but then the database must match the log.
				sameAsLog(t, m)
			}
		}
		closeMember(t, m)
		m = open(t, cfg)
		sameAsLog(t, m)
		closeMember(t, m)
	})
}

// TestPartialWrite makes the file system accept only a part of a write, up to a sector. The log must be reopened, now and
// after a restart, with all acknowledged writes. This is done with RLIMIT_FSIZE, which counts for the whole process, and go
// test writes files, too: so the test runs in a subprocess.
func TestPartialWrite(t *testing.T) {
	if _, inChild := inSubprocess(t, "1"); !inChild {
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
		l := newAckedWrites()
		for n := 0; n < 20 && err == nil; n++ {
			err = l.write(t.Context(), m, fmt.Sprint(n, strings.Repeat("y", 1000)), true)
		}
		restore()
		if !errors.Is(err, ErrBroken) {
			t.Errorf("error %v", err)
		}
		// The interval after which the log is reopened has passed.
		m.writeTurn.mu.Lock()
		m.writeTurn.lastAttempt = time.Time{}
		m.writeTurn.mu.Unlock()
		mustPut(t, m, "after", "1")
		l.check(t, proaMember{m})
		sameAsLog(t, m)
		closeMember(t, m)
		m = open(t, cfg)
		l.check(t, proaMember{m})
		if got := pairs(t, m.KV(), 0); got["first"].version != 1 || got["after"].version != 1 {
			t.Errorf("%d sectors: the first or the last is not there", sectors)
		}
		closeMember(t, m)
	}
}

// limitFiles limits the size of the files that this process may write, until restore is called.
func limitFiles(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	var previous syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &previous); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: previous.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &previous); err != nil {
			t.Error(err)
		}
	}
}

// TestOnFatal checks that Config.OnFatal is called for disk errors other than a full disk.
func TestOnFatal(t *testing.T) {
	cfg := config(t.TempDir())
	var fatalErrs []error
	cfg.OnFatal = func(err error) { fatalErrs = append(fatalErrs, err) }
	m := openWithCleanup(t, cfg)
	mustPut(t, m, "first", "1")
	m.log.Storage = &failingLog{Storage: m.log.Storage, save: func(int64, func() error) error { return syscall.EIO }}
	if _, err := m.Txn(t.Context(), put("a", "1")); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v", err)
	}
	if len(fatalErrs) != 1 || !errors.Is(fatalErrs[0], syscall.EIO) {
		t.Errorf("OnFatal was called with %v", fatalErrs)
	}
	m.writeTurn.lastAttempt = m.writeTurn.lastAttempt.Add(-reopenInterval)
	if err := m.Settle(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("later: %v", err)
	}
}
