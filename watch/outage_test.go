package watch_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

// failingSource is a store whose first watch fails with the error that is sent to fault.
type failingSource struct {
	watch.Source
	once  sync.Once
	fault chan error
}

func (b *failingSource) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	first := false
	b.once.Do(func() { first = true })
	if !first {
		return b.Source.Watch(ctx, prefix, after)
	}
	return func(yield func(kv.Batch, error) bool) {
		select {
		case err := <-b.fault:
			yield(kv.Batch{}, err)
		case <-ctx.Done():
		}
	}
}

// TestIdleCacheAfterWatchFailure checks that a cache serves reads after its watch was reopened, even if none of its objects
// changes.
func TestIdleCacheAfterWatchFailure(t *testing.T) {
	for _, fault := range []error{errors.New("permission denied"), kv.ErrCompacted} {
		w := newCacheTest(t)
		b := &failingSource{Source: w.store, fault: make(chan error)}
		c := watch.New(watch.Config{
			Prefix: w.def.Prefix(), Source: b, Log: slog.New(slog.DiscardHandler),
			Decode: func(p kv.Pair) (kind.Object, error) { return w.codec.Load(w.def, p) },
		})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		b.fault <- fault
		var rev int64
		for end := time.Now().Add(time.Minute); time.Now().Before(end); { // until the watch is open again, reads may fail
			var err error
			if rev, err = w.store.Commit(t.Context(), kv.Write{Key: "/registry/others/x", Value: []byte("1"), Rev: rev}); err != nil {
				t.Fatal(err)
			}
			if err = c.WaitFor(ctx, rev); err == nil {
				break
			}
			if c.Rev() >= rev {
				t.Fatal(err)
			}
		}
		if c.Rev() < rev {
			t.Errorf("after %v the cache stays at %d and the store is at %d", fault, c.Rev(), rev)
		}
		stop()
		wg.Wait()
	}
}

// silentStore is a store that answers no watch but the first, which is that of the cache, as during an outage.
type silentStore struct {
	*laggingStore
	silent atomic.Bool
}

func (s *silentStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	if s.silent.Load() {
		return func(yield func(kv.Batch, error) bool) {
			<-ctx.Done()
			yield(kv.Batch{}, ctx.Err())
		}
	}
	return s.laggingStore.Watch(ctx, prefix, after)
}

// TestRevisionIsNotTooOldDuringOutage checks that a watch that must be resumed from the store, while the store does not answer, is not
// told that its revision is too old: it can be resumed later.
func TestRevisionIsNotTooOldDuringOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		first := b.put("1", "a")
		b.put("2", "a")
		store := &silentStore{laggingStore: b.store}
		b.source = store
		b.run() // its history begins after the first write
		store.silent.Store(true)
		_, _, _, err := b.cache.Watch(t.Context(), watch.Selection{Prefix: b.def.Prefix()}, watch.Start{After: first})
		if _, tooOld := errors.AsType[*watch.TooOld](err); tooOld || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("during the outage: %v", err)
		}
		store.silent.Store(false)
		b.expect(b.watch(first), "MODIFIED a@"+strconv.FormatInt(b.revs["a"], 10))
		b.stop()
	})
}

// dyingStore answers watches other than the cache's with one batch and then no more.
type dyingStore struct {
	*laggingStore
	dying atomic.Bool
}

func (s *dyingStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	if !s.dying.Load() {
		return s.laggingStore.Watch(ctx, prefix, after)
	}
	return func(yield func(kv.Batch, error) bool) {
		if !yield(kv.Batch{Rev: after + 1}, nil) {
			return
		}
		<-ctx.Done()
		yield(kv.Batch{}, ctx.Err())
	}
}

// TestOutageWhileChangesAreRead checks that a watch is not told that its revision is too old if the store stops answering while the
// changes since then are read.
func TestOutageWhileChangesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		first := b.put("1", "a")
		b.put("2", "a")
		b.put("3", "a")
		b.put("4", "a")
		store := &dyingStore{laggingStore: b.store}
		b.source = store
		b.run()
		store.dying.Store(true)
		_, _, _, err := b.cache.Watch(t.Context(), watch.Selection{Prefix: b.def.Prefix()}, watch.Start{After: first})
		if _, tooOld := errors.AsType[*watch.TooOld](err); tooOld {
			t.Errorf("during the outage: %v", err)
		}
		b.stop()
	})
}

// splittingStore answers watches with one change a batch.
type splittingStore struct{ *laggingStore }

func (s splittingStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.laggingStore.Watch(ctx, prefix, after) {
			for i := 0; i+1 < len(b.Changes); i++ {
				if !yield(kv.Batch{Rev: b.Changes[i].Rev, Changes: b.Changes[i : i+1]}, nil) {
					return
				}
			}
			b.Changes = b.Changes[max(0, len(b.Changes)-1):]
			if !yield(b, err) {
				return
			}
		}
	}
}

// TestSlowDecodingIsNoOutage checks that a watch is told that its revision is too old if the store answers, and decoding its changes takes
// too long: it would not be faster later.
func TestSlowDecodingIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		first := b.put("1", "a")
		for range 9 {
			b.put("2", "a")
		}
		b.source, b.decodeTime = splittingStore{b.store}, 600*time.Millisecond // of an object; a change has two
		b.run()
		_, _, _, err := b.cache.Watch(t.Context(), watch.Selection{Prefix: b.def.Prefix()}, watch.Start{After: first})
		if _, tooOld := errors.AsType[*watch.TooOld](err); !tooOld {
			t.Errorf("want TooOld, got %v", err)
		}
		b.stop()
	})
}
