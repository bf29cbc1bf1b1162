package state

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	memorystore "proa.dev/store/memory"
	"proa.dev/watch"
)

// slowStore delays what watches of keys with a prefix deliver, until resumed is closed.
type slowStore struct {
	*memorystore.Store
	prefix  string
	resumed chan struct{}
}

func (s *slowStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.Store.Watch(ctx, prefix, after) {
			if strings.HasPrefix(prefix, s.prefix) {
				select {
				case <-s.resumed:
				case <-ctx.Done():
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// TestWatchSeesLastObjectsOfDefinition checks that a watch of custom objects is told of the deletion of the last ones when their
// definition is deleted, even if its cache learns of that after the cache of definitions, and that it is not ended before.
func TestWatchSeesLastObjectsOfDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme, err := kinds.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		def := apiextensions.CustomResourceDefinitions(apiextensions.Hooks{})
		store := &slowStore{Store: memorystore.New(memorystore.Config{}), prefix: "/registry/example.com/", resumed: make(chan struct{})}
		s := New(t.Context(), codec.New(scheme), store, []*kind.Def{def}, slog.New(slog.DiscardHandler))
		write := func(key string, rev int64, value []byte) int64 {
			t.Helper()
			at, err := store.Commit(t.Context(), kv.Write{Key: key, Rev: rev, Value: value})
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		encode := func(change func(*apiextensionsv1.CustomResourceDefinition)) []byte {
			d := largeDefinition(1, 1)
			change(d)
			value, err := s.Codec.Store(def, d)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
		key := def.Key("", "things1.example.com")
		rev := write(key, 0, encode(func(*apiextensionsv1.CustomResourceDefinition) {}))
		if err := s.FollowDefinitions(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		on := schema.GroupResource{Group: "example.com", Resource: "things1"}
		things := s.Def(on)
		object := write(things.Key("ns", "a"), 0,
			[]byte(`{"apiVersion":"example.com/v1","kind":"Thing1","metadata":{"namespace":"ns","name":"a"}}`))
		w, state, _, err := s.Cache(things).Watch(t.Context(), watch.Selection{Prefix: things.Prefix()}, watch.Start{State: true})
		if err != nil || len(state) != 1 {
			t.Fatal(len(state), err)
		}
		// What a deletion of the definition does: it is marked, its objects are deleted, and it is removed.
		rev = write(key, rev, encode(func(d *apiextensionsv1.CustomResourceDefinition) {
			d.DeletionTimestamp, d.Generation = new(metav1.Now()), d.Generation+1
		}))
		synctest.Wait()
		write(things.Key("ns", "a"), object, nil)
		write(key, rev, nil)
		synctest.Wait()
		if s.Def(on) != nil {
			t.Error("the resource is still served")
		}
		close(store.resumed)
		items, err := w.Next(t.Context(), nil, nil)
		if err != nil || len(items) != 1 || items[0].As != watch.Deleted {
			t.Fatalf("the watch got %v, %v", items, err)
		}
		if _, err := w.Next(t.Context(), nil, nil); !errors.Is(err, watch.ErrStopped) {
			t.Errorf("the watch ended with %v", err)
		}
		s.Close()
	})
}
