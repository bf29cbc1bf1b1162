package singlemember

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/datadir"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// ackedWrites records which writes of a test were acknowledged.
type ackedWrites struct {
	mu sync.Mutex
	// acked maps keys to the revisions of their writes. refused has keys that must not be stored, because the condition of
	// their write was false. broken counts the writes that failed with ErrBroken.
	acked   map[string]int64
	refused map[string]bool
	broken  int
}

func newAckedWrites() *ackedWrites {
	return &ackedWrites{acked: map[string]int64{}, refused: map[string]bool{}}
}

// copy returns the writes that were acknowledged until now.
func (l *ackedWrites) copy() *ackedWrites {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newAckedWrites()
	for k, v := range l.acked {
		c.acked[k] = v
	}
	for k := range l.refused {
		c.refused[k] = true
	}
	return c
}

// write puts a key that no other write uses, under a condition that is true if holds is.
func (l *ackedWrites) write(ctx context.Context, m *Member, key string, holds bool) error {
	r := &pb.TxnRequest{Compare: []*pb.Compare{modIs(key, 0)}, Success: put(key, key).Success}
	if !holds {
		r.Compare[0] = modIs(key, 7)
	}
	before := m.KV().Rev()
	resp, err := m.Txn(ctx, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		if !holds {
			l.refused[key] = true
		}
		if errors.Is(err, ErrBroken) {
			l.broken++
		}
		return err
	case resp.Succeeded != holds:
		return fmt.Errorf("%s: the condition holds: %v", key, resp.Succeeded)
	case !holds:
		l.refused[key] = true
	case resp.Header.Revision <= before:
		return fmt.Errorf("%s: revision %d after %d", key, resp.Header.Revision, before)
	default:
		l.acked[key] = resp.Header.Revision
	}
	return nil
}

// check checks that all acknowledged writes are stored, and no refused ones.
func (l *ackedWrites) check(t *testing.T, s server) {
	t.Helper()
	stored := pairs(t, s.KV(), 0)
	for key, rev := range l.acked {
		if p := stored[key]; p.value != key || p.mod != rev || p.version != 1 {
			t.Errorf("%.20s was acknowledged at %d; now there is %.80v", key, rev, p)
		}
		if rev > s.KV().Rev() {
			t.Errorf("%.20s was acknowledged at %d; the store is at %d", key, rev, s.KV().Rev())
		}
	}
	for key := range l.refused {
		if p, ok := stored[key]; ok {
			t.Errorf("%s was refused; now there is %v", key, p)
		}
	}
}

// runWriters runs n writers. Each ends after its writes, when ctx ends, or when a write fails for another reason than its
// own timeout.
func runWriters(ctx context.Context, t *testing.T, m *Member, l *ackedWrites, n, each int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range n {
		wg.Go(func() {
			for i := 0; i < each && ctx.Err() == nil; i++ {
				c, cancel := ctx, context.CancelFunc(func() {})
				if rand.IntN(3) == 0 {
					c, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(2000))*time.Microsecond)
				}
				err := l.write(c, m, fmt.Sprintf("%d-%d", w, i), rand.IntN(4) != 0)
				ended := c.Err() != nil
				cancel()
				if err != nil && !ended {
					if !errors.Is(err, ErrBroken) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestAcknowledgedWritesSurviveCrash starts members from copies of the folder of a member under load, as a crash would
// leave it, and checks that all writes acknowledged before the copy are there.
func TestAcknowledgedWritesSurviveCrash(t *testing.T) {
	cfg := config(t.TempDir())
	// Several snapshots are made, and some writes are only in the log.
	cfg.SnapshotEvery = 300
	m := open(t, cfg)
	l := newAckedWrites()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { runWriters(ctx, t, m, l, 64, 1<<30) })
	for i := range 6 {
		time.Sleep(100 * time.Millisecond)
		acked := l.copy()
		copied := cfg
		copied.Dir = crashCopy(t, m.Backend(), cfg.Dir)
		s := startMember(t, i%2 == 1, copied)
		acked.check(t, s)
		s.stop(t)
	}
	stop()
	wg.Wait()
	closeMember(t, m)
	s := startMember(t, false, cfg)
	l.check(t, s)
	s.stop(t)
	t.Logf("%d acknowledged, %d refused", len(l.acked), len(l.refused))
}

// TestLogOrderMatchesRevisions compares the order of the entries with the revisions of the responses.
func TestLogOrderMatchesRevisions(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	m := open(t, cfg)
	l := newAckedWrites()
	runWriters(t.Context(), t, m, l, 64, 40)
	sameAsLog(t, m)
	closeMember(t, m)
	rev, n := int64(1), 0
	seen := map[string]bool{}
	for i, r := range readLogRequests(t, cfg.Dir) {
		if r == nil || r.Txn == nil {
			continue
		}
		key := string(r.Txn.Success[0].GetRequestPut().Key)
		if r.Txn.Compare[0].GetModRevision() != 0 || seen[key] {
			continue
		}
		rev, seen[key] = rev+1, true
		if acked, ok := l.acked[key]; ok {
			n++
			if acked != rev {
				t.Errorf("%s was acknowledged at revision %d; entry %d of the log makes it %d", key, acked, i+1, rev)
			}
		}
	}
	if n != len(l.acked) || n == 0 {
		t.Errorf("%d of %d acknowledged writes are in the log", n, len(l.acked))
	}
}

// readLogRequests returns the requests of a log from its beginning, with nil for entries without one. It checks that indexes
// have no gap, that terms do not decrease, and that an empty entry begins a new term.
func readLogRequests(t *testing.T, dir string) []*pb.InternalRaftRequest {
	t.Helper()
	w, err := wal.OpenForRead(zap.NewNop(), datadir.ToWALDir(dir), &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, state, entries, err := w.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var requests []*pb.InternalRaftRequest
	term := uint64(0)
	for i, e := range entries {
		if e.GetIndex() != uint64(i+1) || e.GetTerm() < term {
			t.Fatalf("entry %d has index %d and term %d after %d", i+1, e.GetIndex(), e.GetTerm(), term)
		}
		if i > 0 && len(e.GetData()) == 0 && e.GetTerm() == term {
			t.Errorf("entry %d is empty and has term %d, as the one before", i+1, term)
		}
		term = e.GetTerm()
		var r *pb.InternalRaftRequest
		if i > 0 && len(e.GetData()) > 0 {
			r = &pb.InternalRaftRequest{}
			if err := proto.Unmarshal(e.GetData(), r); err != nil {
				t.Fatal(err)
			}
		}
		requests = append(requests, r)
	}
	if state.GetCommit() != uint64(len(entries)) || state.GetTerm() != term {
		t.Errorf("the log has %d entries of term up to %d; its state is %v", len(entries), term, state)
	}
	return requests
}
