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

// TestTakeover lets the two kinds of member take turns on the same data, after a close or a crash.
func TestTakeover(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			takeTurns(t, seed)
		})
	}
}

func takeTurns(t *testing.T, seed uint64) {
	cfg := config(t.TempDir())
	m := newModel(seed)
	genuine := seed%2 == 0
	for range 10 {
		s := start(t, genuine, cfg)
		m.check(t, s)
		for range m.rng.IntN(80) {
			m.step(t, s)
		}
		m.check(t, s)
		if m.rng.IntN(2) == 0 {
			copied := crash(t, s.Backend(), cfg.Dir)
			s.stop(t)
			cfg.Dir = copied
		} else {
			s.stop(t)
		}
		// Sometimes the same kind goes on.
		genuine = m.rng.IntN(4) != 0 != genuine
	}
	s := start(t, false, cfg)
	m.check(t, s)
	s.stop(t)
}

// TestLogIsCutAndPurged makes sure that the small files of these tests do what they are for.
func TestLogIsCutAndPurged(t *testing.T) {
	cfg := config(t.TempDir())
	m := opened(t, cfg)
	for i := range 40 {
		for range 5 {
			mustPut(t, m, "a", strings.Repeat("x", 20<<10))
		}
		if i%10 == 0 {
			copied := cfg
			copied.Dir, copied.SnapshotEvery = crash(t, m.Backend(), cfg.Dir), 3
			shut(t, open(t, copied))
		}
	}
	for ends, most := range map[string]int{"wal/*.wal": 8, "snap/*.snap": memberlog.KeepSnapshots + 1} {
		files, err := filepath.Glob(filepath.Join(cfg.Dir, "member", ends))
		if err != nil {
			t.Fatal(err)
		}
		if len(files) < 2 || len(files) > most {
			t.Errorf("there are %d files %s", len(files), ends)
		}
		if first := filepath.Base(files[0]); strings.HasPrefix(first, "0000000000000000-0000000000000000") {
			t.Errorf("the oldest file is still there: %s", first)
		}
	}
}

// TestLogIsReleasedByBytes writes few large changes: the log begins anew after a number of bytes, also when it was
// begun by another process, and etcd goes on from what is left.
func TestLogIsReleasedByBytes(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery, cfg.SnapshotBytes = 1<<30, 512<<10
	value := strings.Repeat("x", 30<<10)
	for round := range 10 {
		m := open(t, cfg)
		for n := range 10 {
			mustPut(t, m, fmt.Sprintf("%d%d", round, n), value)
		}
		shut(t, m)
		if size := folderSize(t, datadir.ToWALDir(cfg.Dir)); size > 2*cfg.SnapshotBytes {
			t.Fatalf("after %d times 300 KiB the log takes %d KiB", round+1, size>>10)
		}
	}
	for _, genuine := range []bool{false, true} {
		s := start(t, genuine, cfg)
		if got := pairs(t, s.KV(), 0); len(got) != 100 || got["99"].value != value {
			t.Errorf("genuine %v: there are %d keys", genuine, len(got))
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

// TestChangesNothing has a log of changes that change nothing: the database has to keep up with the log all the same.
func TestChangesNothing(t *testing.T) {
	for name, nothing := range map[string]func(m *Member, rev int64) (ok bool){
		"condition": func(m *Member, rev int64) bool {
			r, err := m.Txn(t.Context(), &pb.TxnRequest{Compare: []*pb.Compare{modIs("a", rev+1)}, Success: put("a", "2").Success})
			return err == nil && !r.Succeeded
		},
		"compaction": func(m *Member, rev int64) bool { return errors.Is(m.Compact(t.Context(), rev+1), mvcc.ErrFutureRev) },
		"lease":      func(m *Member, _ int64) bool { return errors.Is(m.Revoke(t.Context(), 5), lease.ErrLeaseNotFound) },
	} {
		for _, genuine := range []bool{false, true} {
			cfg := config(t.TempDir())
			cfg.BatchInterval = time.Hour
			m := open(t, cfg)
			rev := mustPut(t, m, "a", "1")
			for range 3*cfg.SnapshotEvery + 5 {
				if !nothing(m, rev) {
					t.Errorf("%s: something has changed", name)
				}
			}
			cfg.Dir = crash(t, m.Backend(), cfg.Dir)
			shut(t, m)
			s := start(t, genuine, cfg)
			if got := pairs(t, s.KV(), 0)["a"]; got.value != "1" || s.KV().Rev() != rev {
				t.Errorf("%s: a is %v at revision %d; want 1 at %d", name, got, s.KV().Rev(), rev)
			}
			s.stop(t)
		}
	}
}

// TestIndexGoesWithTheChange commits the database and crashes when a change is just made: it must not be made again
// after the start.
func TestIndexGoesWithTheChange(t *testing.T) {
	cfg := config(t.TempDir())
	m := opened(t, cfg)
	var copies []string
	m.applier = &badApplier{UberApplier: m.applier, do: func(_ int64, do func() *apply.Result) *apply.Result {
		r := do()
		m.Backend().ForceCommit()
		copies = append(copies, crash(t, m.Backend(), cfg.Dir))
		return r
	}}
	for range 4 {
		mustPut(t, m, "a", "1")
	}
	for i, dir := range copies {
		copied := cfg
		copied.Dir = dir
		s := start(t, i%2 == 0, copied)
		if p := pairs(t, s.KV(), 0)["a"]; p.version != int64(i+1) || s.KV().Rev() != int64(i+2) {
			t.Errorf("write %d: there is %v at revision %d", i+1, p, s.KV().Rev())
		}
		s.stop(t)
	}
}

// TestTerms begins a term with each start.
func TestTerms(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	const starts = 6
	for i := range starts {
		s := start(t, i%3 == 1, cfg)
		if _, err := s.Txn(t.Context(), put("a", "1")); err != nil {
			t.Fatal(err)
		}
		s.stop(t)
	}
	empty := 0
	for i, r := range logged(t, cfg.Dir) {
		if i > 0 && r == nil {
			empty++
		}
	}
	if empty != starts {
		t.Errorf("the log has %d entries that say nothing; want %d", empty, starts)
	}
}

// TestDatabaseIsOnlyACache removes the database, from which nothing was lost yet.
func TestDatabaseIsOnlyACache(t *testing.T) {
	for _, genuine := range []bool{false, true} {
		cfg := config(t.TempDir())
		cfg.SnapshotEvery = 10000
		m := newModel(7)
		for range 3 {
			s := start(t, genuine, cfg)
			for range 50 {
				m.step(t, s)
			}
			s.stop(t)
			if err := os.Remove(filepath.Join(cfg.Dir, "member", "snap", "db")); err != nil {
				t.Fatal(err)
			}
			o := start(t, false, cfg)
			m.check(t, o)
			o.stop(t)
		}
	}
}
