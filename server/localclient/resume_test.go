package localclient

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/state"
	memorystore "proa.dev/store/memory"
	"proa.dev/watch"
)

// pausingStore pauses its second watch, which is that of a cache that is loaded again, until resumed is closed.
type pausingStore struct {
	*memorystore.Store
	watches atomic.Int64
	resumed chan struct{}
}

func (s *pausingStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	paused := s.watches.Add(1) == 2
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.Store.Watch(ctx, prefix, after) {
			if paused {
				<-s.resumed
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// TestViewShowsWhatItTells checks that a view whose watch is resumed yields no event before it shows the change: a resumed watch begins
// with changes from the store, which is ahead of the cache, and a controller that is woken too early is not woken again.
func TestViewShowsWhatItTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := kinds.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		def, store := core.ConfigMaps(), &pausingStore{Store: memorystore.New(memorystore.Config{}), resumed: make(chan struct{})}
		s := state.New(t.Context(), codec.New(scheme), store, []*kind.Def{def}, slog.New(slog.DiscardHandler))
		write := func(w kv.Write) int64 {
			t.Helper()
			rev, err := store.Commit(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			return rev
		}
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
		o.SetGroupVersionKind(def.GroupVersionKind)
		value, err := s.Codec.Store(def, o)
		if err != nil {
			t.Fatal(err)
		}
		rev := write(kv.Write{Key: def.Key("ns", "a"), Value: value})
		cache := s.Cache(def)
		v := &view{def: def, cache: cache, sel: watch.Selection{Prefix: def.Prefix()}, show: (*watch.Entry).Object}
		ctx, stop := context.WithCancel(t.Context())
		busy, deleted := make(chan struct{}), false
		go func() {
			for ev := range v.Events(ctx) {
				if <-busy; !ev.Deleted {
					continue
				}
				deleted = true
				if _, found := v.Get("ns", "a"); found {
					t.Error("the view still has an object whose deletion it has told")
				}
			}
		}()
		synctest.Wait()
		lag := kv.Write{Key: def.Key("ns", "b"), Value: value}
		for range 9000 { // more than are queued for a watch
			lag.Rev = write(lag)
		}
		synctest.Wait()
		cache.Reload()
		synctest.Wait()
		write(kv.Write{Key: def.Key("ns", "a"), Rev: rev})
		close(busy)
		synctest.Wait()
		if _, found := client.View(v).Get("ns", "a"); !found {
			t.Error("the cache is not behind the store, so that nothing is tested")
		}
		close(store.resumed)
		synctest.Wait()
		if !deleted {
			t.Error("the deletion is not told")
		}
		stop()
		s.Close()
	})
}
