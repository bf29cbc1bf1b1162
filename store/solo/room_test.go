package solo

import (
	"errors"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
