package memory

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/kv"
)

// recordWatch runs a watch and records its batches as lines with the time since the start.
func recordWatch(t *testing.T, s *Store, prefix string, after int64) (lines func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	start := time.Now()
	var out []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for b, err := range s.Watch(ctx, prefix, after) {
			if err != nil {
				t.Error(err)
				return
			}
			var recorded []string
			for _, c := range b.Changes {
				verb := "+"
				if c.Delete {
					verb = "-"
				}
				recorded = append(recorded, fmt.Sprintf("%s%s@%d(%d)", verb, c.Key, c.Rev, c.Prev.Rev))
			}
			out = append(out, fmt.Sprintf("%v rev %d: %s", time.Since(start), b.Rev, strings.Join(recorded, " ")))
		}
	})
	return func() []string {
		cancel()
		wg.Wait()
		return out
	}
}

// TestKeysExpireInVirtualTime lets keys expire over hours of virtual time, and checks that a watch gets each expiry at its
// exact time.
func TestKeysExpireInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		defer closeStore(t, s)
		lines := recordWatch(t, s, "/a/", 1)
		synctest.Wait()

		short := commit(t, s, kv.Write{Key: "/a/hour", Value: []byte("1"), TTL: 3600},
			kv.Write{Key: "/a/hour2", Value: []byte("1"), TTL: 3600})
		commit(t, s, kv.Write{Key: "/b/other", Value: []byte("1"), TTL: 60})
		time.Sleep(30 * time.Minute)
		long := commit(t, s, kv.Write{Key: "/a/soon", Value: []byte("1"), TTL: 60},
			kv.Write{Key: "/a/days", Value: []byte("1"), TTL: 3 * 86400})
		time.Sleep(5 * time.Minute)
		// A write replaces the TTL of a key, and a write without TTL removes it.
		commit(t, s, kv.Write{Key: "/a/hour", Value: []byte("2"), Rev: short, TTL: 3600})
		commit(t, s, kv.Write{Key: "/a/days", Value: []byte("2"), Rev: long})
		time.Sleep(100 * time.Hour)
		if err := s.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		commit(t, s, kv.Write{Key: "/b/other", Value: []byte("1")})
		if err := s.Progress(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		want := []string{
			"0s rev 3: +/a/hour@2(0) +/a/hour2@2(0)",
			"30m0s rev 5: +/a/soon@5(0) +/a/days@5(0)",
			"31m0s rev 6: -/a/soon@6(5)",
			"35m0s rev 8: +/a/hour@7(2) +/a/days@8(5)",
			"1h0m0s rev 9: -/a/hour2@9(2)",
			"1h35m0s rev 10: -/a/hour@10(7)",
			"100h35m0s rev 11: ",
		}
		if got := lines(); !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestExpireTogether checks that keys that expire at the same time are deleted at one revision, in the order of keys.
func TestExpireTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		defer closeStore(t, s)
		for _, k := range []string{"/a/c", "/a/a", "/a/b"} {
			commit(t, s, kv.Write{Key: k, Value: []byte("1"), TTL: 10})
		}
		lines := recordWatch(t, s, "/", 4)
		time.Sleep(10*time.Second + 1)
		want := []string{"10s rev 5: -/a/a@5(3) -/a/b@5(4) -/a/c@5(2)"}
		if got := lines(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if s.expiries.Len() != 0 || s.timer != nil {
			t.Errorf("%d expiries and the alarm %v are left", s.expiries.Len(), s.timer)
		}
	})
}

// TestCloseWithExpiringKeys closes a store before and at the time at which keys expire.
func TestCloseWithExpiringKeys(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{})
			rev := commit(t, s, kv.Write{Key: "/a", Value: []byte("1"), TTL: 60})
			time.Sleep(wait)
			closeStore(t, s)
			after := s.rev
			time.Sleep(time.Hour)
			if s.rev != after || after > rev+1 {
				t.Errorf("the store went from %d to %d after its close at %d", rev, s.rev, after)
			}
		})
	}
}

// TestRunCompaction checks that history older than two intervals is compacted, history younger than one is not, and
// that the last state of an idle store is compacted, for which the store writes once.
func TestRunCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		defer closeStore(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.RunCompaction(ctx, 5*time.Minute) })
		old := commit(t, s, kv.Write{Key: "/a", Value: []byte("1")})
		end := commit(t, s, kv.Write{Key: "/a", Value: []byte("2"), Rev: old})
		time.Sleep(6 * time.Minute)
		recent := commit(t, s, kv.Write{Key: "/a", Value: []byte("3"), Rev: end})
		compacted := func(rev int64) bool {
			_, err := s.List(t.Context(), kv.Range{Prefix: "/", Rev: rev})
			if err != nil && !errors.Is(err, kv.ErrCompacted) {
				t.Fatal(err)
			}
			return err != nil
		}
		if compacted(old) {
			t.Error("the first round compacts")
		}
		time.Sleep(5 * time.Minute)
		if !compacted(old) || !compacted(end) || compacted(recent) {
			t.Errorf("after the second round the oldest revision is %d", s.compacted)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !compacted(recent) || s.rev != recent+1 {
			t.Errorf("at rest at %d the oldest revision is %d", s.rev, s.compacted)
		}
		time.Sleep(24 * time.Hour)
		if s.rev != recent+1 {
			t.Errorf("a store at rest went on to %d", s.rev)
		}
		cancel()
		wg.Wait()
	})
}

// TestWatchAtFutureRevision starts a watch ahead of the store, which delivers nothing until the store has reached the
// revision.
func TestWatchAtFutureRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		defer closeStore(t, s)
		rev := commit(t, s, kv.Write{Key: "/a", Value: []byte("0")})
		lines := recordWatch(t, s, "/", rev+2)
		for range 3 {
			time.Sleep(time.Second)
			rev = commit(t, s, kv.Write{Key: "/a", Value: []byte("1"), Rev: rev})
			if err := s.Progress(t.Context()); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		want := []string{"3s rev 5: +/a@5(4)"}
		if got := lines(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
