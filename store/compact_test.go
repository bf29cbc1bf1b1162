package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"proa.dev/kv"
)

// history writes n revisions of a key and returns the first.
func history(t *testing.T, e *Etcd, key string, n int) int64 {
	t.Helper()
	var first, rev int64
	for i := range n {
		var err error
		if rev, err = e.Commit(t.Context(), kv.Write{Key: key, Value: []byte("1"), Rev: rev}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = rev
		}
	}
	return first
}

func isCompacted(t *testing.T, e *Etcd, rev int64) bool {
	t.Helper()
	_, err := e.List(t.Context(), kv.Range{Prefix: "/", Rev: rev})
	if err != nil && !errors.Is(err, kv.ErrCompacted) {
		t.Fatal(err)
	}
	return err != nil
}

func TestCompactionRounds(t *testing.T) {
	e := embed(t, t.TempDir())
	first := history(t, e, "/a/x", 3)
	r := e.compactRound(t.Context(), round{})
	if isCompacted(t, e, first) {
		t.Error("the first round compacts")
	}
	second := history(t, e, "/a/y", 3)
	r = e.compactRound(t.Context(), r)
	if !isCompacted(t, e, first) || isCompacted(t, e, second) {
		t.Error("the second round does not compact what the first has seen, or more")
	}
	// In an idle store the last state is compacted, too, for which the store writes once. After that it writes no more.
	at := r.rev
	r = e.compactRound(t.Context(), r)
	if !isCompacted(t, e, at) {
		t.Error("the state at the end of the last round can still be read as the past")
	}
	before := r
	for range 3 {
		r = e.compactRound(t.Context(), r)
	}
	if r.rev != before.rev {
		t.Errorf("rounds of a store at rest write: from %d to %d", before.rev, r.rev)
	}
}

// fullMember is a member whose disk is full.
type fullMember struct{ member }

func (fullMember) txn(context.Context, *pb.TxnRequest, bool) (*pb.TxnResponse, error) {
	return nil, etcderrors.ErrNoSpace
}

// TestCompactionOfAFullStore compacts a store that accepts no writes.
func TestCompactionOfAFullStore(t *testing.T) {
	e := embed(t, t.TempDir())
	first := history(t, e, "/a/x", 3)
	r := e.compactRound(t.Context(), round{})
	last := r.rev
	e.member = fullMember{e.member}
	r = e.compactRound(t.Context(), r)
	if !isCompacted(t, e, first) || isCompacted(t, e, last) {
		t.Error("the past is kept, or the present is not")
	}
	if r = e.compactRound(t.Context(), r); r.rev != last || isCompacted(t, e, last) {
		t.Errorf("another round ends at %d, want %d", r.rev, last)
	}
}

// TestSharedCompaction lets two servers compact one etcd.
func TestSharedCompaction(t *testing.T) {
	o := serveEtcd(t)
	a, b := connectTo(t, o.addr), connectTo(t, o.addr)
	first := history(t, a, "/a/x", 3)
	ra := a.compactRound(t.Context(), round{})
	rb := b.compactRound(t.Context(), round{})
	if ra.count != 1 || rb.count != 1 {
		t.Fatalf("the servers are at %+v and %+v", ra, rb)
	}
	second := history(t, a, "/a/y", 3)
	rb = b.compactRound(t.Context(), rb)
	if !isCompacted(t, a, first) || isCompacted(t, a, second) {
		t.Fatal("the round of b does not compact what it has seen before, or more")
	}
	if ra = a.compactRound(t.Context(), ra); ra.count != rb.count {
		t.Errorf("a counts %d rounds, b %d", ra.count, rb.count)
	}
	if isCompacted(t, a, second) {
		t.Error("a compacts in the round of b")
	}
	p, _, err := a.Get(t.Context(), compactKey)
	if err != nil || len(p.Value) == 0 {
		t.Errorf("the key is %+v, %v", p, err)
	}
}

// TestRunCompaction runs the compaction loop and waits until a revision is compacted.
func TestRunCompaction(t *testing.T) {
	e := embed(t, t.TempDir())
	first := history(t, e, "/a/x", 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.RunCompaction(ctx, time.Millisecond)
	}()
	rev := first + 1
	for !isCompacted(t, e, first) {
		var err error
		if rev, err = e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1"), Rev: rev}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-done
}

// TestCompactionOfOneWrite checks that the state of a single write between two rounds is compacted, in a store that was
// busy before and in an idle one.
func TestCompactionOfOneWrite(t *testing.T) {
	for _, before := range []int{1, 4} {
		e := embed(t, t.TempDir())
		history(t, e, "/a/x", 3)
		var r round
		for range before {
			r = e.compactRound(t.Context(), r)
		}
		one := history(t, e, "/a/y", 1)
		for range 2 {
			r = e.compactRound(t.Context(), r)
		}
		if !isCompacted(t, e, one) {
			t.Errorf("after %d rounds: the state at %d, which one write has left, can be read for ever", before, one)
		}
		rest := r.rev
		for range 3 {
			r = e.compactRound(t.Context(), r)
		}
		if now, err := e.Revision(t.Context()); err != nil || now != rest {
			t.Errorf("after %d rounds: rounds of a store at rest write: from %d to %d, %v", before, rest, now, err)
		}
	}
}

// TestCompactionFails makes each operation of a compaction round fail once; the next round must still compact.
func TestCompactionFails(t *testing.T) {
	for _, failing := range []string{"commit", "compact"} {
		t.Run(failing, func(t *testing.T) {
			broken := false
			e, err := Embed(t.Context(), Config{Dir: t.TempDir(), Hook: func(op, key string) error {
				if broken && op == failing {
					return errors.New("no answer")
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
			first := history(t, e, "/a/x", 3)
			r := e.compactRound(t.Context(), round{})
			broken = true
			r = e.compactRound(t.Context(), r)
			if isCompacted(t, e, first) {
				t.Fatal("the round did not fail")
			}
			broken = false
			if r = e.compactRound(t.Context(), r); !isCompacted(t, e, first+2) {
				t.Errorf("the round after the one that failed leaves what that one left; it ends as %+v", r)
			}
		})
	}
}

// TestManyBytesAreCompacted writes far more than the history may have, while the interval of compaction is not over.
func TestManyBytesAreCompacted(t *testing.T) {
	e, err := Embed(t.Context(), Config{Dir: t.TempDir(), HistoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { e.RunCompaction(ctx, 24*time.Hour) })
	defer func() { stop(); wg.Wait() }()
	value := make([]byte, 100<<10)
	var first, rev int64
	for range 1000 {
		if rev, err = e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: value, Rev: rev}); err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = rev
		} else if isCompacted(t, e, first) {
			return
		}
	}
	t.Error("a hundred times the bytes of history are kept")
}
