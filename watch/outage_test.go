package watch_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"testing"
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
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); { // until the watch is open again, reads may fail
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
