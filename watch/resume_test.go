package watch_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/store/memory"
	"proa.dev/watch"
)

// laggingStore is a store whose first watch, that of the cache, can be paused, so that the cache lags behind the store.
// Other watches are not paused.
type laggingStore struct {
	*memory.Store
	paused  chan struct{} // has a capacity of one; full while the watch of the cache is paused
	watches atomic.Int64
	// onPastBatch, if not nil, is called for each batch of a watch other than that of the cache.
	onPastBatch func()
}

func (s *laggingStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	first := s.watches.Add(1) == 1
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.Store.Watch(ctx, prefix, after) {
			if first {
				s.paused <- struct{}{}
				<-s.paused
			} else if s.onPastBatch != nil {
				s.onPastBatch()
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// laggingCacheTest is a test with a cache that can be made to lag behind its store, in a synctest bubble.
type laggingCacheTest struct {
	*testing.T
	store *laggingStore
	// source is what the cache reads; the store, unless a test replaces it.
	source watch.Source
	cache  *watch.Cache
	codec  *codec.Codec
	def    *kind.Def
	revs   map[string]int64
	stop   func()
	// decodeTime is how long decoding an object takes.
	decodeTime time.Duration
}

func newLaggingCacheTest(t *testing.T) *laggingCacheTest {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &laggingCacheTest{T: t, store: &laggingStore{Store: memory.New(memory.Config{}), paused: make(chan struct{}, 1)},
		codec: codec.New(scheme),
		def:   core.ConfigMaps(), revs: map[string]int64{}}
	b.source = b.store
	t.Cleanup(func() { _ = b.store.Close() })
	return b
}

// run starts the cache.
func (b *laggingCacheTest) run() {
	b.Helper()
	b.cache = watch.New(watch.Config{
		Prefix: b.def.Prefix(), Source: b.source, Log: slog.New(slog.DiscardHandler),
		Decode: func(p kv.Pair) (kind.Object, error) {
			time.Sleep(b.decodeTime)
			return b.codec.Load(b.def, p)
		},
	})
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.cache.Run(ctx) })
	b.stop = func() { stop(); wg.Wait() }
	b.Cleanup(b.stop)
	if err := b.cache.WaitUntilFresh(ctx); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// put writes ConfigMaps in one transaction and returns its revision.
func (b *laggingCacheTest) put(data string, names ...string) int64 {
	b.Helper()
	var writes []kv.Write
	for _, name := range names {
		value, err := b.codec.Store(b.def, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Data: map[string]string{"v": data},
		})
		if err != nil {
			b.Fatal(err)
		}
		writes = append(writes, kv.Write{Key: b.def.Key("ns", name), Value: value, Rev: b.revs[name]})
	}
	rev, err := b.store.Commit(b.Context(), writes...)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range names {
		b.revs[name] = rev
	}
	return rev
}

// watch starts a watch after a revision.
func (b *laggingCacheTest) watch(after int64) *watch.Watcher {
	b.Helper()
	w, _, _, err := b.cache.Watch(b.Context(), watch.Selection{Prefix: b.def.Prefix()}, watch.Start{After: after})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(w.Close)
	return w
}

// queuedEvents returns all queued events of a watcher, as texts "TYPE name@revision".
func (b *laggingCacheTest) queuedEvents(w *watch.Watcher) string {
	b.Helper()
	synctest.Wait()
	ctx, stop := context.WithCancel(b.Context())
	stop()
	var got []string
	for {
		items, err := w.Next(ctx, nil, nil)
		if err != nil {
			return strings.Join(got, " ")
		}
		for _, it := range items {
			got = append(got, fmt.Sprintf("%s %s@%d", it.As, it.Event.Now.Object().GetName(), it.Event.Rev))
		}
	}
}

func (b *laggingCacheTest) expect(w *watch.Watcher, want string) {
	b.Helper()
	if got := b.queuedEvents(w); got != want {
		b.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestResumedWatchRepeatsNothing checks that a watch that is resumed during writes gets each event once and in order,
// whether it reads past changes from the store, which is ahead of the cache, or starts at a revision that the cache has
// not reached yet.
func TestResumedWatchRepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		first := b.put("1", "a")
		second := b.put("2", "a")
		b.run() // its history begins after the second write
		b.store.paused <- struct{}{}
		third, fourth := b.put("3", "a"), b.put("4", "b", "c")
		past, ahead, middle := b.watch(first), b.watch(fourth), b.watch(third)
		before := fmt.Sprintf("MODIFIED a@%d MODIFIED a@%d ADDED b@%d ADDED c@%d", second, third, fourth, fourth)
		b.expect(past, before)
		b.expect(ahead, "")
		for name, w := range map[string]*watch.Watcher{"that read the past": past, "that began ahead of the cache": ahead} {
			if at, caught := w.DeliveredUpTo(); !caught || at != fourth {
				t.Errorf("a bookmark of the watch %s would have %d (%v), want %d", name, at, caught, fourth)
			}
		}
		<-b.store.paused // the cache reaches that revision, too
		b.expect(past, "")
		b.expect(ahead, "")
		b.expect(middle, fmt.Sprintf("ADDED b@%d ADDED c@%d", fourth, fourth))
		fifth := b.put("5", "a")
		for _, w := range []*watch.Watcher{past, ahead, middle} {
			b.expect(w, fmt.Sprintf("MODIFIED a@%d", fifth))
		}
	})
}

// TestHistoryMovesOnDuringCatchUp checks that a watch that reads past changes from the store continues to do so, and does not
// fail with TooOld, when so many changes are made meanwhile that the history of the cache begins after those it has read.
func TestHistoryMovesOnDuringCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		first := b.put("1", "a")
		want := []string{fmt.Sprintf("MODIFIED a@%d", b.put("2", "a"))}
		b.run()
		large := strings.Repeat("x", 10<<10) // the history keeps only few events of large objects
		once := sync.OnceFunc(func() {
			for range 600 {
				want = append(want, fmt.Sprintf("MODIFIED a@%d", b.put(large, "a")))
			}
			synctest.Wait()
		})
		b.store.onPastBatch = once
		b.expect(b.watch(first), strings.Join(want, " "))
	})
}

// TestSlowWatcherEndsBetweenRevisions checks that a watcher that is ended because it is slow gets all events of its
// last revision, so that it can be resumed after that revision.
func TestSlowWatcherEndsBetweenRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		start := b.put("1", "a")
		var slow *watch.Watcher
		var got []watch.Item
		b.run()
		// The selection is called for each event, so the watcher can read an event in the middle of a transaction.
		sel := watch.Selection{Prefix: b.def.Prefix(), Keep: func(o kind.Object) bool {
			if o.GetName() == "c" && slow != nil && len(got) == 0 {
				got, _ = slow.Next(t.Context(), nil, nil)
			}
			return true
		}}
		w, _, _, err := b.cache.Watch(t.Context(), sel, watch.Start{After: start})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		slow = w
		both := b.put("2", "b", "c")
		for range 9000 { // more than the queue of a watcher holds
			b.put("3", "a")
		}
		synctest.Wait() // until the cache has applied the writes
		if len(got) != 1 || got[0].Event.Rev != both {
			t.Fatalf("the watcher took %v first, want half of the transaction at %d", got, both)
		}
		b.expect(slow, fmt.Sprintf("ADDED c@%d", both))
	})
}

// TestStoppedCacheEndsWatches checks that waiting reads, watchers and watches that start later get ErrStopped when the
// cache stops, not TooOld.
func TestStoppedCacheEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLaggingCacheTest(t)
		start := b.put("1", "a")
		b.run()
		early := b.watch(start)
		waited := make(chan error, 1)
		go func() { waited <- b.cache.WaitFor(t.Context(), start+1000) }()
		synctest.Wait()
		b.stop()
		if err := <-waited; !errors.Is(err, watch.ErrStopped) {
			t.Errorf("WaitFor returned %v", err)
		}
		for _, w := range []*watch.Watcher{early, b.watch(start)} {
			if _, err := w.Next(t.Context(), nil, nil); !errors.Is(err, watch.ErrStopped) || err.Error() != watch.ErrStopped.Error() {
				t.Errorf("the watch ended with %v", err)
			}
		}
	})
}
