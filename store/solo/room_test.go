package solo

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/datadir"
)

// TestFullDisk refuses what needs room, and takes what makes room.
func TestFullDisk(t *testing.T) {
	cfg := config(t.TempDir())
	m := open(t, cfg)
	mustPut(t, m, "a", "1")
	lease := leased(t, m, long, "b")
	shut(t, m)
	cfg.Reserve = 1 << 62
	m = opened(t, cfg)
	if r, err := m.Txn(t.Context(), put("c", "1")); !errors.Is(err, ErrFull) {
		t.Errorf("put: %v, %v", r, err)
	}
	if r, err := m.Grant(t.Context(), long); !errors.Is(err, ErrFull) {
		t.Errorf("grant: %v, %v", r, err)
	}
	if r, err := m.Txn(t.Context(), &pb.TxnRequest{Compare: []*pb.Compare{modIs("a", 2)}, Success: []*pb.RequestOp{deleteOp("a", "")}}); err != nil || !r.Succeeded {
		t.Errorf("delete: %v, %v", r, err)
	}
	if err := (ours{m}).revoke(t.Context(), lease); err != nil {
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

// TestFirstLook has several look at the disk at once, for the first time: nobody may see it full.
func TestFirstLook(t *testing.T) {
	dir := t.TempDir()
	for range 2000 {
		var d disk
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if d.free(dir) == 0 {
					t.Error("the disk is full")
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
	}
}

// fill writes until the database is full, and returns the last revision.
func fill(t *testing.T, m *Member) (rev int64) {
	t.Helper()
	value := strings.Repeat("x", 64<<10)
	n := 0
	for ; n < 600; n++ {
		r, err := m.Txn(t.Context(), put(fmt.Sprint("key", n), value))
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

// TestQuota fills the database. To etcd the alarm stays when it may be larger, to us it does not.
func TestQuota(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Quota = 24 << 20
	m := open(t, cfg)
	full(t, ours{m}, fill(t, m))
	id := m.id
	shut(t, m)
	m = open(t, cfg)
	full(t, ours{m}, m.KV().Rev())
	shut(t, m)
	cfg.Quota = 1 << 30
	s := start(t, true, cfg)
	full(t, s, s.KV().Rev())
	if a := s.Alarms(); len(a) != 1 || a[0].MemberID != uint64(id) {
		t.Errorf("alarms %v; want one of %d", a, uint64(id))
	}
	s.stop(t)
	m = opened(t, cfg)
	mustPut(t, m, "more", "1")
	if a := m.Alarms(); len(a) > 0 {
		t.Errorf("alarms %v", a)
	}
}

// TestRelief deletes from a database that is full: it takes changes again when what was deleted is forgotten.
func TestRelief(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Quota = 24 << 20
	m := open(t, cfg)
	fill(t, m)
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
	// It is forgotten in the background. Several find out at once that there is room.
	taken := make([]bool, 8)
	for end := time.Now().Add(20 * time.Second); slices.Contains(taken, false) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var all sync.WaitGroup
		for i := range taken {
			all.Go(func() {
				_, err := m.Txn(t.Context(), put(fmt.Sprint("late", i), "1"))
				taken[i] = taken[i] || err == nil
				if err != nil && !errors.Is(err, etcderrors.ErrNoSpace) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if now := m.Backend().Size(); slices.Contains(taken, false) || now >= before/2 || len(m.Alarms()) > 0 {
		t.Fatalf("taken %v, %d bytes of %d, alarms %v", taken, now, before, m.Alarms())
	}
	want := pairs(t, m.KV(), 0)
	if len(want) != 9 || len(want["key0"].value) != 64<<10 {
		t.Errorf("there are %d keys", len(want))
	}
	shut(t, m)
	leftover := datadir.ToBackendFileName(cfg.Dir) + ".tmp.17"
	if err := os.WriteFile(leftover, []byte("half a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, genuine := range []bool{false, true} {
		s := start(t, genuine, cfg)
		if got := pairs(t, s.KV(), 0); !maps.Equal(got, want) || len(s.Alarms()) > 0 {
			t.Errorf("genuine %v: %d keys, want %d; alarms %v", genuine, len(got), len(want), s.Alarms())
		}
		s.stop(t)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what an interrupted shrink left: %v", err)
	}
}

// TestShrinkNeedsRoom does not write the database anew on a disk that cannot hold both.
func TestShrinkNeedsRoom(t *testing.T) {
	cfg := config(t.TempDir())
	m := opened(t, cfg)
	m.cfg.Reserve = 1 << 62
	without := m.shrink()
	m.cfg.Reserve, m.measured = 0, time.Time{}
	if with := m.shrink(); without || !with {
		t.Errorf("shrinks without room: %v, with room: %v", without, with)
	}
}

// full makes sure that a member takes nothing that needs room.
func full(t *testing.T, s server, rev int64) {
	t.Helper()
	if a := s.Alarms(); len(a) != 1 || a[0].Alarm != pb.AlarmType_NOSPACE {
		t.Errorf("alarms %v", a)
	}
	for range 2 {
		if r, err := s.Txn(t.Context(), put("more", "1")); !errors.Is(err, etcderrors.ErrNoSpace) {
			t.Errorf("put: %v, %v", r, err)
		}
		if r, err := s.grant(t.Context(), long, 0); !errors.Is(err, etcderrors.ErrNoSpace) {
			t.Errorf("grant: %v, %v", r, err)
		}
	}
	if now := s.KV().Rev(); now != rev {
		t.Errorf("at revision %d; want %d", now, rev)
	}
	all := pairs(t, s.KV(), 0)
	for key := range all {
		if r, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp(key, "")}}); err != nil || r.Header.Revision != rev+1 {
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
