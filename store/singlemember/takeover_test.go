package singlemember

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"proa.dev/store/singlemember/memberlog"
)

// TestTakeover starts etcd's server and members of this package alternately on the same data, after a close or a crash, and
// compares the data with a model.
func TestTakeover(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			alternateMembers(t, seed)
		})
	}
}

func alternateMembers(t *testing.T, seed uint64) {
	cfg := config(t.TempDir())
	m := newModel(seed)
	useEtcd := seed%2 == 0
	for range 10 {
		s := startMember(t, useEtcd, cfg)
		m.check(t, s)
		for range m.rng.IntN(80) {
			m.step(t, s)
		}
		m.check(t, s)
		if m.rng.IntN(2) == 0 {
			copied := crashCopy(t, s.Backend(), cfg.Dir)
			s.stop(t)
			cfg.Dir = copied
		} else {
			s.stop(t)
		}
		// Sometimes the same implementation is started again.
		useEtcd = m.rng.IntN(4) != 0 != useEtcd
	}
	s := startMember(t, false, cfg)
	m.check(t, s)
	s.stop(t)
}

// TestLogIsCutAndPurged checks that with the small segments of these tests, the log has several, and old ones are purged.
func TestLogIsCutAndPurged(t *testing.T) {
	cfg := config(t.TempDir())
	m := openWithCleanup(t, cfg)
	for i := range 40 {
		for range 5 {
			mustPut(t, m, "a", strings.Repeat("x", 20<<10))
		}
		if i%10 == 0 {
			copied := cfg
			copied.Dir, copied.SnapshotEvery = crashCopy(t, m.Backend(), cfg.Dir), 3
			closeMember(t, open(t, copied))
		}
	}
	for pattern, maxFiles := range map[string]int{"wal/*.wal": 8, "snap/*.snap": memberlog.KeepSnapshots + 1} {
		files, err := filepath.Glob(filepath.Join(cfg.Dir, "member", pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) < 2 || len(files) > maxFiles {
			t.Errorf("there are %d files %s", len(files), pattern)
		}
		if first := filepath.Base(files[0]); strings.HasPrefix(first, "0000000000000000-0000000000000000") {
			t.Errorf("the oldest file is still there: %s", first)
		}
	}
}

// TestLogIsReleasedByBytes checks that a few large changes make the log release old segments, counted in bytes and over
// restarts, and that etcd can start from the rest.
func TestLogIsReleasedByBytes(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.SnapshotBytes = 1<<30, 512<<10
	value := strings.Repeat("x", 30<<10)
	for round := range 10 {
		m := open(t, cfg)
		for n := range 10 {
			mustPut(t, m, fmt.Sprintf("%d%d", round, n), value)
		}
		closeMember(t, m)
		if size := folderSize(t, datadir.ToWALDir(cfg.Dir)); size > 2*cfg.SnapshotBytes {
			t.Fatalf("after %d times 300 KiB the log takes %d KiB", round+1, size>>10)
		}
	}
	for _, useEtcd := range []bool{false, true} {
		s := startMember(t, useEtcd, cfg)
		if got := pairs(t, s.KV(), 0); len(got) != 100 || got["99"].value != value {
			t.Errorf("etcd %v: there are %d keys", useEtcd, len(got))
		}
		s.stop(t)
	}
}

// folderSize sums the sizes of the files of a folder.
func folderSize(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// TestEntriesWithoutEffect checks that the applied index of the database keeps up with a log of entries that change nothing.
func TestEntriesWithoutEffect(t *testing.T) {
	for name, noEffect := range map[string]func(m *Member, rev int64) (ok bool){
		"condition": func(m *Member, rev int64) bool {
			r, err := m.Txn(t.Context(), &pb.TxnRequest{Compare: []*pb.Compare{modIs("a", rev+1)}, Success: put("a", "2").Success})
			return err == nil && !r.Succeeded
		},
		"compaction": func(m *Member, rev int64) bool { return errors.Is(m.Compact(t.Context(), rev+1), mvcc.ErrFutureRev) },
		"lease":      func(m *Member, _ int64) bool { return errors.Is(m.Revoke(t.Context(), 5), lease.ErrLeaseNotFound) },
	} {
		for _, useEtcd := range []bool{false, true} {
			cfg := config(t.TempDir())
			cfg.BatchInterval = time.Hour
			m := open(t, cfg)
			rev := mustPut(t, m, "a", "1")
			for range 3*cfg.SnapshotEvery + 5 {
				if !noEffect(m, rev) {
					t.Errorf("%s: something has changed", name)
				}
			}
			cfg.Dir = crashCopy(t, m.Backend(), cfg.Dir)
			closeMember(t, m)
			s := startMember(t, useEtcd, cfg)
			if got := pairs(t, s.KV(), 0)["a"]; got.value != "1" || s.KV().Rev() != rev {
				t.Errorf("%s: a is %v at revision %d; want 1 at %d", name, got, s.KV().Rev(), rev)
			}
			s.stop(t)
		}
	}
}

// TestAppliedIndexIsCommittedWithItsChange crashes after a change was committed to the database: it must not be applied again
// after the start.
func TestAppliedIndexIsCommittedWithItsChange(t *testing.T) {
	cfg := config(t.TempDir())
	m := openWithCleanup(t, cfg)
	var copies []string
	m.applier = &failingApplier{UberApplier: m.applier, do: func(_ int64, do func() *apply.Result) *apply.Result {
		r := do()
		m.Backend().ForceCommit()
		copies = append(copies, crashCopy(t, m.Backend(), cfg.Dir))
		return r
	}}
	for range 4 {
		mustPut(t, m, "a", "1")
	}
	for i, dir := range copies {
		copied := cfg
		copied.Dir = dir
		s := startMember(t, i%2 == 0, copied)
		if p := pairs(t, s.KV(), 0)["a"]; p.version != int64(i+1) || s.KV().Rev() != int64(i+2) {
			t.Errorf("write %d: there is %v at revision %d", i+1, p, s.KV().Rev())
		}
		s.stop(t)
	}
}

// TestEachStartBeginsATerm checks that each start writes an empty entry, which begins a new term.
func TestEachStartBeginsATerm(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	const starts = 6
	for i := range starts {
		s := startMember(t, i%3 == 1, cfg)
		if _, err := s.Txn(t.Context(), put("a", "1")); err != nil {
			t.Fatal(err)
		}
		s.stop(t)
	}
	empty := 0
	for i, r := range readLogRequests(t, cfg.Dir) {
		if i > 0 && r == nil {
			empty++
		}
	}
	if empty != starts {
		t.Errorf("the log has %d empty entries; want %d", empty, starts)
	}
}

// TestDatabaseIsRebuiltFromLog removes the database while the log still has all entries.
func TestDatabaseIsRebuiltFromLog(t *testing.T) {
	for _, useEtcd := range []bool{false, true} {
		cfg := config(t.TempDir())
		cfg.SnapshotEvery = 10000
		m := newModel(7)
		for range 3 {
			s := startMember(t, useEtcd, cfg)
			for range 50 {
				m.step(t, s)
			}
			s.stop(t)
			if err := os.Remove(filepath.Join(cfg.Dir, "member", "snap", "db")); err != nil {
				t.Fatal(err)
			}
			o := startMember(t, false, cfg)
			m.check(t, o)
			o.stop(t)
		}
	}
}
