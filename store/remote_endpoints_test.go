package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"proa.dev/kv"
)

// fakeQuorum are the members of an etcd. A member answers a request after its delay, with its error, or never while it is frozen.
type fakeQuorum struct {
	term     atomic.Uint64
	revision atomic.Int64 // it grows with every answer
	members  []*quorumMember
}

type quorumMember struct {
	quorum *fakeQuorum
	pb.KVClient
	mu      sync.Mutex // guards what follows
	frozen  bool
	loses   bool // it answers reads, but no writes
	err     error
	delay   time.Duration
	written int
}

func (m *quorumMember) set(change func(*quorumMember)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

func (m *quorumMember) answer(ctx context.Context, write bool) (*pb.ResponseHeader, error) {
	m.mu.Lock()
	frozen, delay, err := m.frozen || write && m.loses, m.delay, m.err
	if write && !frozen && err == nil {
		m.written++
	}
	m.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	select {
	case <-time.After(delay):
		return &pb.ResponseHeader{Revision: m.quorum.revision.Add(1), RaftTerm: m.quorum.term.Load()}, err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (m *quorumMember) Range(ctx context.Context, _ *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	h, err := m.answer(ctx, false)
	return &pb.RangeResponse{Header: h}, err
}

func (m *quorumMember) Txn(ctx context.Context, _ *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	h, err := m.answer(ctx, true)
	return &pb.TxnResponse{Header: h, Succeeded: true}, err
}

// Watch opens a watch that delivers one batch at once, without changes.
func (m *quorumMember) Watch(ctx context.Context, _ ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	s := &fakeWatchStream{ctx: ctx, responses: make(chan *pb.WatchResponse, 2)}
	if h, err := m.answer(ctx, false); err == nil {
		s.responses <- &pb.WatchResponse{Created: true}
		s.responses <- &pb.WatchResponse{Header: h}
	}
	return s, nil
}

// newQuorum returns three members, and a store that uses them until the test ends.
func newQuorum(t *testing.T) (*fakeQuorum, *Etcd) {
	q := &fakeQuorum{}
	q.term.Store(2)
	q.revision.Store(10)
	var all []*endpoint
	for _, url := range []string{"a", "b", "c"} {
		m := &quorumMember{quorum: q, delay: time.Millisecond}
		q.members = append(q.members, m)
		all = append(all, &endpoint{url: url, kv: m, watch: m})
	}
	r := &remote{endpoints: newEndpoints(slog.New(slog.NewTextHandler(t.Output(), nil)), all...)}
	r.rounds.read, r.rounds.timeout = r.revision, freshTimeout
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	return q, newEtcd(r, Config{}.withDefaults())
}

// within runs a request, and fails unless it ends in the given time, with an error or without.
func within(t *testing.T, what string, limit time.Duration, fails bool, request func() error) {
	t.Helper()
	began := time.Now()
	err := request()
	if took := time.Since(began); took > limit || (err != nil) != fails || err != nil && !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("%s: %v after %v, want it within %v, fails: %v", what, err, took, limit, fails)
	}
}

// TestFrozenMember checks that a member which stops to answer is felt for at most one and a half seconds: reads are made at another
// one, writes in flight end with an unknown outcome and are not made twice, and those that follow go to another member.
func TestFrozenMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := newQuorum(t)
		write := func() error { _, err := e.Commit(t.Context(), kv.Write{Key: "/a"}); return err }
		read := func() error { _, _, err := e.Get(t.Context(), "/a"); return err }
		var watched atomic.Int64 // batches
		go func() {
			for range e.Watch(t.Context(), "/a/", 10) {
				watched.Add(1)
			}
		}()
		time.Sleep(time.Minute)
		within(t, "a write before", time.Millisecond, false, write)
		q.members[0].set(func(m *quorumMember) { m.frozen = true })
		var wg sync.WaitGroup
		wg.Go(func() { within(t, "a read in flight", probeInterval+patience+10*time.Millisecond, false, read) })
		wg.Go(func() { within(t, "a write in flight", probeInterval+2*patience+10*time.Millisecond, true, write) })
		wg.Go(func() {
			time.Sleep(probeInterval + patience + 10*time.Millisecond)
			within(t, "a write afterwards", 10*time.Millisecond, false, write)
			if n := watched.Load(); n != 2 {
				t.Errorf("%d batches were watched, want the second from another member", n)
			}
		})
		wg.Wait()
		if q.members[0].written != 1 || q.members[1].written+q.members[2].written != 1 {
			t.Errorf("written %d %d %d times", q.members[0].written, q.members[1].written, q.members[2].written)
		}
	})
}

// TestMemberWithoutLeader checks that a member that is cut off from the others, and says so, costs nothing, not even a write.
func TestMemberWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := newQuorum(t)
		q.members[0].set(func(m *quorumMember) { m.err = rpctypes.ErrGRPCNoLeader })
		within(t, "a write", 5*retryPause, false, func() error { _, err := e.Commit(t.Context(), kv.Write{Key: "/a"}); return err })
		within(t, "a read", time.Millisecond, false, func() error { _, _, err := e.Get(t.Context(), "/a"); return err })
	})
}

// TestSlowMember checks that a write at a member that is only slow is not given up, and that nothing is while no member answers.
func TestSlowMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := newQuorum(t)
		write := func() error { _, err := e.Commit(t.Context(), kv.Write{Key: "/a"}); return err }
		q.members[0].set(func(m *quorumMember) { m.delay = patience + patience/2 })
		within(t, "a slow write", patience+patience/2, false, write)
		for _, m := range q.members {
			m.set(func(m *quorumMember) { m.delay = 3 * time.Second })
		}
		within(t, "a write while all are slow", 3*time.Second, false, write)
	})
}

// TestLostWrites checks that writes which were sent to a leader that died are given up when there is another leader.
func TestLostWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, e := newQuorum(t)
		time.Sleep(time.Second)
		q.members[0].set(func(m *quorumMember) { m.loses = true })
		var wg sync.WaitGroup
		wg.Go(func() {
			within(t, "a write that the leader has lost", 1500*time.Millisecond+probeInterval+2*lostAfter, true,
				func() error { _, err := e.Commit(t.Context(), kv.Write{Key: "/a"}); return err })
		})
		time.Sleep(1500 * time.Millisecond)
		q.term.Store(3)
		wg.Wait()
	})
}
