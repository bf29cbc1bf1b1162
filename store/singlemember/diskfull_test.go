package singlemember

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/datadir"

	"proa.dev/store/singlemember/diskspace"
)

// TestFullDisk checks that on a full disk changes that need space are refused, and those that free space are made.
func TestFullDisk(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	mustPut(t, m, "a", "1")
	lease := grantWithKey(t, m, longTTL, "b")
	closeMember(t, m)
	cfg.Reserve = 1 << 62
	m = openWithCleanup(t, cfg)
	if r, err := m.Txn(t.Context(), put("c", "1")); !errors.Is(err, diskspace.ErrFull) {
		t.Errorf("put: %v, %v", r, err)
	}
	if r, err := m.Grant(t.Context(), longTTL); !errors.Is(err, diskspace.ErrFull) {
		t.Errorf("grant: %v, %v", r, err)
	}
	if r, err := m.Txn(t.Context(),
		&pb.TxnRequest{Compare: []*pb.Compare{modIs("a", 2)}, Success: []*pb.RequestOp{deleteOp("a", "")}}); err != nil || !r.Succeeded {
		t.Errorf("delete: %v, %v", r, err)
	}
	if err := (proaMember{m}).revoke(t.Context(), lease); err != nil {
		t.Errorf("revoke: %v", err)
	}
	if err := m.Compact(t.Context(), m.KV().Rev()); err != nil {
		t.Errorf("compact: %v", err)
	}
	if err := m.Settle(t.Context()); err != nil {
		t.Errorf("settle: %v", err)
	}
	if got := pairs(t, m.KV(), 0); len(got) > 0 || len(m.Alarms()) > 0 {
		t.Errorf("there is %v and the alarms %v", got, m.Alarms())
	}
}

// limitDisk makes a member measure its folder as if that were alone on a disk of so many bytes. It returns a function that
// returns the free bytes of that disk.
func limitDisk(t *testing.T, m *Member, bytes int64) (free func() int64) {
	t.Helper()
	measure := func(dir string) int64 { return bytes - diskUsage(t, dir) }
	m.disk.SetMeasure(measure)
	return func() int64 { return measure(m.cfg.Dir) }
}

// diskUsage returns the bytes that the files below a folder take on the disk. Files may be created and removed meanwhile.
func diskUsage(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var s syscall.Stat_t
		if err == nil && d.Type().IsRegular() && syscall.Stat(path, &s) == nil {
			bytes += s.Blocks * 512
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return bytes
}

// fillDisk writes from several goroutines until the disk is full, and returns the keys.
func fillDisk(t *testing.T, m *Member, size int) (keys []string) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := range 1000 {
				key := fmt.Sprintf("w%d-%d-%d", w, n, m.KV().Rev())
				_, err := m.Txn(t.Context(), put(key, strings.Repeat("x", size)))
				if errors.Is(err, diskspace.ErrFull) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				keys = append(keys, key)
				mu.Unlock()
			}
			t.Error("the disk is never full")
		})
	}
	wg.Wait()
	return keys
}

// TestReserveIsKeptFree checks that the reserve stays free even if changes are committed to the database only later: the
// space that they will take is counted when they are admitted.
func TestReserveIsKeptFree(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Reserve, cfg.BatchInterval, cfg.SnapshotEvery = 8<<20, time.Hour, 1<<30
	m := openWithCleanup(t, cfg)
	free := limitDisk(t, m, 24<<20)
	keys := fillDisk(t, m, 200<<10)
	m.Backend().ForceCommit()
	if left := free(); left < int64(cfg.Reserve)*3/4 || len(keys) < 20 {
		t.Errorf("%d KiB of %d are left after %d changes", left>>10, cfg.Reserve>>10, len(keys))
	}
}

// TestFilledDiskRecovers fills the disk with writes, deletes keys, and writes again. The space of deleted keys must be
// compacted within seconds and used again, or returned to the disk, without an administrator. The reserve must stay free.
// Time is virtual.
func TestFilledDiskRecovers(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Reserve, cfg.SnapshotEvery, cfg.SnapshotBytes = 8<<20, 1<<30, 1<<30
	const value = 200 << 10
	var want map[string]pair
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cfg)
		defer closeMember(t, m)
		free := limitDisk(t, m, 24<<20)
		// fillUntilSettled fills the disk until it is full even after old segments of the log were removed. It returns the keys.
		fillUntilSettled := func() (keys []string) {
			for empty := 0; empty < 3; time.Sleep(2 * freeSpaceInterval) {
				more := fillDisk(t, m, value)
				keys = append(keys, more...)
				if empty++; len(more) > 0 {
					empty = 0
				}
			}
			if left := free(); left < int64(cfg.Reserve)/4 {
				t.Errorf("%d KiB are left", left>>10)
			}
			if err := m.Room(); !errors.Is(err, diskspace.ErrFull) || !strings.Contains(err.Error(), "8 MiB are kept") {
				t.Errorf("Room returns %v", err)
			}
			if r, err := m.TxnFromReserve(t.Context(), put("start", "1")); err != nil {
				t.Errorf("what a start needs: %v, %v", r, err)
			}
			return keys
		}
		deleteKeys := func(keys []string) {
			for _, key := range keys {
				if _, err := m.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp(key, "")}}); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			for m.Room() != nil && time.Since(begin) < time.Minute {
				time.Sleep(freeSpaceInterval / 10)
			}
			took := time.Since(begin)
			if err := m.Room(); err != nil || took > 5*time.Second {
				t.Errorf("%v after %d of the changes were deleted: %v", took, len(keys), err)
			}
			t.Logf("%d changes deleted: there is room after %v, %d KiB free, database %d KiB", len(keys), took, free()>>10,
				m.Backend().Size()>>10)
		}
		all := fillUntilSettled()
		if len(all) < 50 {
			t.Errorf("%d changes of 200 KiB fit into 24 MiB", len(all))
		}
		// Deleting a third does not free enough space to write a new, smaller database beside the old one.
		third := len(all) / 3
		deleteKeys(all[:third])
		again := fillUntilSettled()
		if len(again) < third/2 {
			t.Errorf("in place of %d changes there was room for %d", third, len(again))
		}
		deleteKeys(slices.Concat(all[third:], again))
		last := fillUntilSettled()
		if len(last) < len(all)*4/5 {
			t.Errorf("after all was deleted %d changes fit, at first %d", len(last), len(all))
		}
		deleteKeys(last[:len(last)-1])
		want = pairs(t, m.KV(), 0)
	})
	for _, useEtcd := range []bool{false, true} {
		s := startMember(t, useEtcd, cfg)
		if got := pairs(t, s.KV(), 0); !maps.Equal(got, want) || len(got) != 2 || len(s.Alarms()) > 0 {
			t.Errorf("etcd %v: %d keys, want %d; alarms %v", useEtcd, len(got), len(want), s.Alarms())
		}
		s.stop(t)
	}
}

// TestSpaceAdmits checks which needs are admitted with how much free and reusable space.
func TestSpaceAdmits(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		free, unused, reuse        int64
		ordinary, reserved, delete bool
	}{
		{64 * mib, 0, 0, true, true, true},
		{63 * mib, 99 * mib, 0, false, true, true},
		{63 * mib, 99 * mib, mib - 1, false, true, true},
		{63 * mib, 99 * mib, mib, true, true, true},
		{24 * mib, 99 * mib, mib, true, true, true},
		{23 * mib, 99 * mib, 99 * mib, false, true, true},
		{16 * mib, 0, 0, false, true, true},
		{15 * mib, 0, 0, false, false, true},
		{15 * mib, 8 * mib, 8 * mib, false, true, true},
		{7 * mib, 7 * mib, 7 * mib, false, false, false},
		{7 * mib, 8 * mib, 8 * mib, false, false, true},
		{-mib, 8 * mib, 8 * mib, false, false, true},
	} {
		s := diskspace.Space{Reserve: 64 * mib, Free: tt.free, Unused: tt.unused, Reuse: tt.reuse}
		for n, want := range map[diskspace.Need]bool{diskspace.Ordinary: tt.ordinary, diskspace.FromReserve: tt.reserved,
			diskspace.OnlyDelete: tt.delete} {
			if got := s.Admits(n); got != want {
				t.Errorf("with %d MiB free, %d unused and %d to use again, need %d is admitted: %v", tt.free/mib, tt.unused/mib,
					tt.reuse/mib, n, got)
			}
		}
	}
	s := diskspace.Space{Reserve: 0, Free: 0}
	if !s.Admits(diskspace.Ordinary) || !s.Admits(diskspace.OnlyDelete) {
		t.Error("without a reserve something is refused")
	}
}

// fillDatabase writes until the database is full, and returns the last revision.
func fillDatabase(t *testing.T, m *Member) (rev int64) {
	t.Helper()
	value := strings.Repeat("x", 64<<10)
	n := 0
	for ; n < 600; n++ {
		r, err := m.TxnFromReserve(t.Context(), put(fmt.Sprint("key", n), value)) // ordinary changes end before the quota
		if errors.Is(err, etcderrors.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rev = r.Header.Revision
		m.Backend().ForceCommit()
	}
	if n < 200 || n == 600 {
		t.Errorf("%d times 64 KiB fit into %d", n, m.cfg.Quota)
	}
	return rev
}

// TestDatabaseQuota fills the database up to its quota. When the quota is raised, etcd keeps the alarm, and a member of this
// package does not.
func TestDatabaseQuota(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Quota = 24 << 20
	m := open(t, cfg)
	expectDatabaseFull(t, proaMember{m}, fillDatabase(t, m))
	id := m.id
	closeMember(t, m)
	m = open(t, cfg)
	expectDatabaseFull(t, proaMember{m}, m.KV().Rev())
	closeMember(t, m)
	cfg.Quota = 1 << 30
	s := startMember(t, true, cfg)
	expectDatabaseFull(t, s, s.KV().Rev())
	if a := s.Alarms(); len(a) != 1 || a[0].MemberID != uint64(id) {
		t.Errorf("alarms %v; want one of %d", a, uint64(id))
	}
	s.stop(t)
	m = openWithCleanup(t, cfg)
	mustPut(t, m, "more", "1")
	if a := m.Alarms(); len(a) > 0 {
		t.Errorf("alarms %v", a)
	}
}

// TestFullDatabaseRecovers checks that a full database accepts changes again when deleted keys have been compacted.
func TestFullDatabaseRecovers(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Quota = 24 << 20
	m := open(t, cfg)
	fillDatabase(t, m)
	before := m.Backend().Size()
	for key := range pairs(t, m.KV(), 0) {
		if key == "key0" {
			continue
		}
		if _, err := m.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp(key, "")}}); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := m.Txn(t.Context(), put("early", "1")); !errors.Is(err, etcderrors.ErrNoSpace) {
		t.Errorf("before anything is forgotten: %v, %v", r, err)
	}
	if err := m.Compact(t.Context(), m.KV().Rev()); err != nil {
		t.Fatal(err)
	}
	// Compaction runs in the background. Several writers notice at the same time that there is space.
	accepted := make([]bool, 8)
	for end := time.Now().Add(time.Minute); slices.Contains(accepted, false) &&
		time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var wg sync.WaitGroup
		for i := range accepted {
			wg.Go(func() {
				_, err := m.Txn(t.Context(), put(fmt.Sprint("late", i), "1"))
				accepted[i] = accepted[i] || err == nil
				if err != nil && !errors.Is(err, etcderrors.ErrNoSpace) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if now := m.Backend().Size(); slices.Contains(accepted, false) || now >= before/2 || len(m.Alarms()) > 0 {
		t.Fatalf("taken %v, %d bytes of %d, alarms %v", accepted, now, before, m.Alarms())
	}
	want := pairs(t, m.KV(), 0)
	if len(want) != 9 || len(want["key0"].value) != 64<<10 {
		t.Errorf("there are %d keys", len(want))
	}
	closeMember(t, m)
	leftover := datadir.ToBackendFileName(cfg.Dir) + ".tmp.17"
	if err := os.WriteFile(leftover, []byte("half a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, useEtcd := range []bool{false, true} {
		s := startMember(t, useEtcd, cfg)
		if got := pairs(t, s.KV(), 0); !maps.Equal(got, want) || len(s.Alarms()) > 0 {
			t.Errorf("etcd %v: %d keys, want %d; alarms %v", useEtcd, len(got), len(want), s.Alarms())
		}
		s.stop(t)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what an interrupted shrink left: %v", err)
	}
}

// TestDefragmentNeedsDiskSpace checks that a database is not defragmented where the disk has no space for the new one.
func TestDefragmentNeedsDiskSpace(t *testing.T) {
	cfg := config(t.TempDir())
	m := openWithCleanup(t, cfg)
	always := func(int64, int64) bool { return true }
	limitDisk(t, m, diskUsage(t, cfg.Dir)+1000)
	without := m.defragment(always)
	m.lastDefragmentCheck = time.Time{}
	limitDisk(t, m, 1<<30)
	if with := m.defragment(always); without || !with {
		t.Errorf("defragments without space: %v, with space: %v", without, with)
	}
}

// expectDatabaseFull checks that a member has the NOSPACE alarm, refuses puts and leases, and still deletes and compacts.
func expectDatabaseFull(t *testing.T, s server, rev int64) {
	t.Helper()
	if a := s.Alarms(); len(a) != 1 || a[0].Alarm != pb.AlarmType_NOSPACE {
		t.Errorf("alarms %v", a)
	}
	for range 2 {
		if r, err := s.Txn(t.Context(), put("more", "1")); !errors.Is(err, etcderrors.ErrNoSpace) {
			t.Errorf("put: %v, %v", r, err)
		}
		if r, err := s.grant(t.Context(), longTTL, 0); !errors.Is(err, etcderrors.ErrNoSpace) {
			t.Errorf("grant: %v, %v", r, err)
		}
	}
	if now := s.KV().Rev(); now != rev {
		t.Errorf("at revision %d; want %d", now, rev)
	}
	all := pairs(t, s.KV(), 0)
	for key := range all {
		if r, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp(key, "")}}); err != nil ||
			r.Header.Revision != rev+1 {
			t.Errorf("delete: %v, %v", r, err)
		}
		break
	}
	if err := s.compact(t.Context(), rev+1); err != nil {
		t.Errorf("compact: %v", err)
	}
	if now := len(pairs(t, s.KV(), 0)); now != len(all)-1 {
		t.Errorf("%d keys of %d are left", now, len(all))
	}
}

// TestDeletionsHaveRoom fills the database with ordinary changes: those that are part of a deletion still fit.
func TestDeletionsHaveRoom(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Quota = 72 << 20 // its file grows by 16 MiB: ordinary changes end at 64
	m := openWithCleanup(t, cfg)
	value := strings.Repeat("x", 1<<20)
	fill := func(txn func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)) (n int) {
		for ; n < 100; n++ {
			_, err := txn(t.Context(), put(fmt.Sprint("key", n), value))
			if errors.Is(err, etcderrors.ErrNoSpace) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			m.Backend().ForceCommit()
		}
		return n
	}
	if n := fill(m.Txn); n < 40 || n > 64 || m.Room() == nil {
		t.Errorf("%d times 1 MiB fit into %d, room %v", n, cfg.Quota, m.Room())
	}
	if n := fill(m.TxnFromReserve); n < 4 {
		t.Errorf("deletions can write %d times 1 MiB", n)
	}
}
