package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/kv"
)

func TestLeaseReuse(t *testing.T) {
	var l leases
	var granted []int64
	grant := func(ttl int64) (int64, error) {
		granted = append(granted, ttl)
		return int64(len(granted)), nil
	}
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		ttl  int64
		at   time.Duration
		want int64
	}{
		{"the first key grants a lease", 3600, 0, 1},
		{"the second key shares it", 3600, 59 * time.Second, 1},
		{"a key with another TTL does not share it", 600, 59 * time.Second, 2},
		{"after a minute it is not reused", 3600, 60 * time.Second, 3},
		{"a shorter TTL is reused for less", 600, 88 * time.Second, 2},
		{"and not for longer", 600, 89 * time.Second, 4},
		{"a lease with a very short TTL is not shared", 10, 0, 5},
		{"not even for the next key", 10, 0, 6},
	} {
		id, err := l.take(t.Context(), c.ttl, start.Add(c.at), grant)
		if err != nil || id != c.want {
			t.Errorf("%s: got %d, want %d (%v)", c.name, id, c.want, err)
		}
	}
	for i, want := range []int64{3660, 630, 3660, 630, 10, 10} {
		if granted[i] != want {
			t.Errorf("grant %d lives %d s, want %d", i, granted[i], want)
		}
	}
	l.forget([]int64{0, 3})
	if id, err := l.take(t.Context(), 3600, start.Add(61*time.Second), grant); err != nil || id != 7 {
		t.Errorf("after a lease was lost: %d, %v", id, err)
	}
	grantErr := errors.New("boom")
	if _, err := l.take(t.Context(), 1, start, func(int64) (int64, error) { return 0, grantErr }); !errors.Is(err, grantErr) {
		t.Errorf("got %v", err)
	}
}

// TestLeaseWaits checks that a writer waits for a lease that another writer has requested no longer than its context.
func TestLeaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l leases
		frozen := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = l.take(t.Context(), 3600, time.Now(), func(int64) (int64, error) { <-frozen; return 1, nil })
		})
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := l.take(ctx, 3600, time.Now(), func(int64) (int64, error) { return 2, nil }); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		l.forget([]int64{7}) // forget does not wait either
		close(frozen)
		wg.Wait()
	})
}

// TestFewLeases checks that many keys with a TTL that are written concurrently share a few leases.
func TestFewLeases(t *testing.T) {
	e := embed(t, t.TempDir())
	const writers, each = 10, 120
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each / 10 {
				var writes []kv.Write
				for j := range 10 {
					writes = append(writes, kv.Write{Key: key(w, i, j), Value: []byte("1"), TTL: 3600})
				}
				if _, err := e.Commit(t.Context(), writes...); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got := len(e.member.(*local).server.Leases())
	if want := writers*each/maxPerLease + 1; got != want {
		t.Errorf("%d leases for %d keys, want %d", got, writers*each, want)
	}
}

func key(parts ...int) string {
	k := "/events"
	for _, p := range parts {
		k += "/" + string(rune('a'+p))
	}
	return k
}

// TestLostLease checks that a write succeeds if the lease that the store would reuse has been revoked.
func TestLostLease(t *testing.T) {
	e := embed(t, t.TempDir())
	write := func(key string) {
		t.Helper()
		if _, err := e.Commit(t.Context(), kv.Write{Key: key, Value: []byte("1"), TTL: 3600}); err != nil {
			t.Fatal(err)
		}
	}
	write("/a/x")
	member := e.member.(*local).server
	list := member.Leases()
	if len(list) != 1 {
		t.Fatalf("%d leases", len(list))
	}
	if err := member.Revoke(t.Context(), list[0].ID); err != nil {
		t.Fatal(err)
	}
	write("/a/y")
	if _, ok, err := e.Get(t.Context(), "/a/y"); err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
}
