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

// ledger has the acknowledged writes.
type ledger struct {
	mu sync.Mutex
	// acked has the revisions of writes, refused the keys that must not be there.
	acked   map[string]int64
	refused map[string]bool
	broken  int
}

func newLedger() *ledger { return &ledger{acked: map[string]int64{}, refused: map[string]bool{}} }

// copy returns the writes that were acknowledged until now.
func (l *ledger) copy() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newLedger()
	for k, v := range l.acked {
		c.acked[k] = v
	}
	for k := range l.refused {
		c.refused[k] = true
	}
	return c
}

// write makes one change with a key of its own, sometimes under a condition that does not hold.
func (l *ledger) write(ctx context.Context, m *Member, key string, holds bool) error {
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

// check checks that all acknowledged writes are there.
func (l *ledger) check(t *testing.T, s server) {
	t.Helper()
	there := pairs(t, s.KV(), 0)
	for key, rev := range l.acked {
		if p := there[key]; p.value != key || p.mod != rev || p.version != 1 {
			t.Errorf("%.20s was acknowledged at %d; now there is %.80v", key, rev, p)
		}
		if rev > s.KV().Rev() {
			t.Errorf("%.20s was acknowledged at %d; the store is at %d", key, rev, s.KV().Rev())
		}
	}
	for key := range l.refused {
		if p, ok := there[key]; ok {
			t.Errorf("%s was refused; now there is %v", key, p)
		}
	}
}

// writers run until their part is done, ctx ends or a write fails for another reason than its own context.
func writers(ctx context.Context, t *testing.T, m *Member, l *ledger, n, each int) {
	t.Helper()
	var all sync.WaitGroup
	for w := range n {
		all.Go(func() {
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
	all.Wait()
}

// TestAcknowledged crashes a member that many write to.
func TestAcknowledged(t *testing.T) {
	cfg := config(t.TempDir())
	// Snapshots are not too rare and not all there is.
	cfg.SnapshotEvery = 300
	m := open(t, cfg)
	l := newLedger()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { writers(ctx, t, m, l, 64, 1<<30) })
	for i := range 6 {
		time.Sleep(100 * time.Millisecond)
		told := l.copy()
		copied := cfg
		copied.Dir = crash(t, m.Backend(), cfg.Dir)
		s := start(t, i%2 == 1, copied)
		told.check(t, s)
		s.stop(t)
	}
	stop()
	all.Wait()
	shut(t, m)
	s := start(t, false, cfg)
	l.check(t, s)
	s.stop(t)
	t.Logf("%d acknowledged, %d refused", len(l.acked), len(l.refused))
}

// TestOrderOfTheLog compares the order of the entries with the revisions of the responses.
func TestOrderOfTheLog(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.SnapshotEvery = 1 << 30
	m := open(t, cfg)
	l := newLedger()
	writers(t.Context(), t, m, l, 64, 40)
	sameAsLog(t, m)
	shut(t, m)
	rev, n := int64(1), 0
	there := map[string]bool{}
	for i, r := range logged(t, cfg.Dir) {
		if r == nil || r.Txn == nil {
			continue
		}
		key := string(r.Txn.Success[0].GetRequestPut().Key)
		if r.Txn.Compare[0].GetModRevision() != 0 || there[key] {
			continue
		}
		rev, there[key] = rev+1, true
		if told, ok := l.acked[key]; ok {
			n++
			if told != rev {
				t.Errorf("%s was told revision %d; entry %d of the log makes it %d", key, told, i+1, rev)
			}
		}
	}
	if n != len(l.acked) || n == 0 {
		t.Errorf("%d of %d acknowledged writes are in the log", n, len(l.acked))
	}
}

// logged returns the requests in a log from its beginning; nil for entries that are none. The indexes have no gap,
// terms do not go back, and an entry that says nothing begins a term.
func logged(t *testing.T, dir string) []*pb.InternalRaftRequest {
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
	var all []*pb.InternalRaftRequest
	term := uint64(0)
	for i, e := range entries {
		if e.GetIndex() != uint64(i+1) || e.GetTerm() < term {
			t.Fatalf("entry %d has index %d and term %d after %d", i+1, e.GetIndex(), e.GetTerm(), term)
		}
		if i > 0 && len(e.GetData()) == 0 && e.GetTerm() == term {
			t.Errorf("entry %d says nothing and has term %d, as the one before", i+1, term)
		}
		term = e.GetTerm()
		var r *pb.InternalRaftRequest
		if i > 0 && len(e.GetData()) > 0 {
			r = &pb.InternalRaftRequest{}
			if err := proto.Unmarshal(e.GetData(), r); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, r)
	}
	if state.GetCommit() != uint64(len(entries)) || state.GetTerm() != term {
		t.Errorf("the log has %d entries of term up to %d; its state is %v", len(entries), term, state)
	}
	return all
}
