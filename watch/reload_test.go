package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

// runCache runs a cache that decodes objects in a way of its own, until the end of the test.
func runCache(w *cacheTest, decode func(kv.Pair) (kind.Object, error)) *watch.Cache {
	c := watch.New(watch.Config{Prefix: w.def.Prefix(), Source: w.store, Decode: decode, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	w.Cleanup(func() { stop(); wg.Wait() })
	return c
}

// reloadWhileLoading calls a function while a cache has read an object that it cannot decode and has not installed it yet. The object can
// be decoded from then on.
func reloadWhileLoading(t *testing.T, again func(*watch.Cache)) {
	t.Helper()
	w := newCacheTest(t)
	w.put("a", 0)
	var locked atomic.Bool
	locked.Store(true)
	entered, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c := runCache(w, func(p kv.Pair) (kind.Object, error) {
		was := locked.Load()
		once.Do(func() { close(entered); <-goOn })
		if was {
			return nil, kv.NewUnreadable(p, errors.New("no key"))
		}
		return w.codec.Load(w.def, p)
	})
	<-entered
	locked.Store(false)
	again(c)
	close(goOn)
	w.put("b", 0)
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, found := c.Get(w.def.Key("ns", "a")); !found {
		t.Error("it is not read again:", c.UnreadableKeys(""))
	}
}

// TestReloadWhileLoading checks that objects are decoded again if that is asked for while they are being loaded.
func TestReloadWhileLoading(t *testing.T) { reloadWhileLoading(t, (*watch.Cache).Reload) }

// TestRereadWhileLoading checks that objects are decoded again if the keys change while they are being loaded for the first time.
func TestRereadWhileLoading(t *testing.T) { reloadWhileLoading(t, (*watch.Cache).Reread) }

// TestRereadWhileAWriteIsDecoded checks that an object is decoded again if the keys change while the watch has delivered it and the cache
// has not applied it yet.
func TestRereadWhileAWriteIsDecoded(t *testing.T) {
	w := newCacheTest(t)
	var locked atomic.Bool
	entered, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c := runCache(w, func(p kv.Pair) (kind.Object, error) {
		if !locked.Load() {
			return w.codec.Load(w.def, p)
		}
		once.Do(func() { close(entered); <-goOn })
		return nil, kv.NewUnreadable(p, errors.New("no key"))
	})
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	locked.Store(true)
	w.put("a", 0)
	<-entered
	locked.Store(false)
	c.Reread()
	close(goOn)
	w.put("b", 0)
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, found := c.Get(w.def.Key("ns", "a")); !found {
		t.Error("it is not read again:", c.UnreadableKeys(""))
	}
}

// TestObjectsAreDecodedTogether checks that a cache decodes all objects of a load, of a retry and of a batch of changes with one call,
// tries a single object first when it retries, and retries an object without those whose names begin like its own.
func TestObjectsAreDecodedTogether(t *testing.T) {
	w := newCacheTest(t)
	for _, name := range []string{"a", "ab", "ac", "b"} {
		w.put(name, 0)
	}
	var mu sync.Mutex
	var calls []int
	locked := true
	c := watch.New(watch.Config{Prefix: w.def.Prefix(), Source: w.store, Log: slog.New(slog.DiscardHandler),
		DecodeAll: func(_ context.Context, pairs []kv.Pair) []kind.Loaded {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, len(pairs))
			out := make([]kind.Loaded, len(pairs))
			for i, p := range pairs {
				if out[i].Object, out[i].Err = w.codec.Load(w.def, p); locked {
					out[i].Err = errors.New("locked")
				}
			}
			return out
		}})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(what string, locks bool, unreadable int, want string, act func() error) {
		t.Helper()
		mu.Lock()
		locked = locks
		mu.Unlock()
		if err := act(); (err != nil) != locks {
			t.Errorf("%s: %v", what, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(calls); got != want || len(c.UnreadableKeys(w.def.Prefix())) != unreadable {
			t.Errorf("%s: decoded %s at a time, %d cannot be, want %s and %d", what, got, len(c.UnreadableKeys("")), want, unreadable)
		}
		calls = nil
	}
	check("load", false, 4, "[4]", func() error { return nil })
	check("a retry that fails", true, 4, "[1]", func() error { return c.Retry(t.Context(), w.def.Prefix()) })
	check("a retry of one", false, 3, "[1]", func() error { return c.Retry(t.Context(), w.def.Key("ns", "a")) })
	check("a retry of all", false, 0, "[1 2]", func() error { return c.Retry(t.Context(), w.def.Prefix()) })
}
